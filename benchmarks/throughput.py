"""Measures training speed against peers in one process: ``python benchmarks/throughput.py --help``.

Rates count target tokens without padding. Ratios are taken within a round over the same batches. On a shared CPU, use
the ratios by CPU seconds: other processes distort wall time.
"""

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.machine import aligned, between, left_out, parser, run_program, settings, torch_threads

EXAMPLES = """examples:
  python benchmarks/throughput.py --size small --lengths multi30k
  python benchmarks/throughput.py --size small --lengths wmt --dropouts everywhere --threads 2 --json
  python benchmarks/throughput.py --size base --lengths wmt --device cuda
  python benchmarks/throughput.py --size big --lengths wmt --device cuda --peers '' --json big.json
"""


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    flags = parser("throughput.py", "Training speed of this engine and its peers over the same batches.", EXAMPLES)
    flags.add_argument("--size", default="small", metavar="{tiny,small,base,big}", help="shape and vocabulary (small)")
    flags.add_argument("--lengths", choices=("multi30k", "wmt"), default="multi30k", help="of which corpus's pairs")
    flags.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    flags.add_argument("--threads", type=int, default=1, help="of a CPU (1)")
    flags.add_argument("--rounds", type=int, default=0, help="each contestant once in each (12 on a CPU, 6 on a GPU)")
    flags.add_argument("--updates", type=int, default=0, help="updates a round (1 on a CPU, 20 on a GPU)")
    flags.add_argument("--warmup", type=int, default=0, help="updates before the clock runs (2 on a CPU, 20 on a GPU)")
    flags.add_argument("--tokens", type=int, default=0, help="budget of a batch, per side (4,096; 25,000 on a GPU)")
    flags.add_argument(
        "--dropouts",
        choices=("paper", "everywhere"),
        default="paper",
        help="paper: sublayers' outputs and embedding sums; everywhere: attention weights and ReLU as well",
    )
    flags.add_argument(
        "--batching", choices=("buckets", "packed"), help="of own, peers always pad (buckets; packed on a GPU)"
    )
    flags.add_argument("--precision", choices=("fp32", "bf16"), help="of all contestants (fp32; bf16 on a GPU)")
    flags.add_argument(
        "--compile",
        action=argparse.BooleanOptionalAction,
        help="torch.compile the layers of all contestants (on a GPU)",
    )
    flags.add_argument("--residual", choices=("fp32", "bf16"), default="fp32", help="own's training.residual (fp32)")
    flags.add_argument("--whole-update", action="store_true", help="own as with REPRO_COMPILE=update")
    flags.add_argument("--peers", default="torch,marian", help="comma-separated: torch, marian; '' for none")
    flags.add_argument("--attention", choices=("torch", "own"), default="torch", help="REPRO_PACKED_ATTENTION of own")
    flags.add_argument("--pairs", type=int, default=0, help="of the made-up corpus (as many as are sorted together)")
    chosen = flags.parse_args(arguments)
    gpu = chosen.device == "cuda"
    # On a shared CPU contestants take turns at every update; on a GPU that would make the device wait.
    chosen.rounds = chosen.rounds or (6 if gpu else 12)
    chosen.updates = chosen.updates or (20 if gpu else 1)
    chosen.warmup = chosen.warmup or (20 if gpu else 2)
    chosen.tokens = chosen.tokens or (25_000 if gpu else 4_096)
    chosen.batching = chosen.batching or ("packed" if gpu else "buckets")
    chosen.precision = chosen.precision or ("bf16" if gpu else "fp32")
    chosen.compile = gpu if chosen.compile is None else chosen.compile
    chosen.peers = [peer for peer in chosen.peers.split(",") if peer]
    return chosen


def measure(arguments: Sequence[str]) -> dict[str, Any]:
    """Return the whole report. Raises ValueError for an unknown size or peer."""
    chosen = parse(arguments)

    import torch

    from benchmarks.comparison import SIZES, compare
    from benchmarks.contestants import PEERS, Contestant, Own, Setting, missing
    from benchmarks.synthetic import LENGTHS, write_corpus
    from model.config import Training
    from model.data.batches import POOL_BATCHES

    absent = left_out(chosen, SIZES, PEERS, missing)
    model, vocabulary = SIZES[chosen.size]
    if chosen.dropouts == "everywhere":
        model = replace(model, p_drop_attention=model.p_drop, p_drop_relu=model.p_drop)
    lengths = LENGTHS[chosen.lengths]
    pairs = chosen.pairs or int(POOL_BATCHES * chosen.tokens / lengths.mean)
    training = Training(
        batch_tokens=chosen.tokens,
        precision=chosen.precision,
        residual=chosen.residual,
        batching=chosen.batching,
        seed=chosen.seed,
    )
    with torch_threads(chosen.threads), tempfile.TemporaryDirectory(prefix="throughput-") as folder:
        write_corpus(Path(folder), lengths, pairs, vocabulary, chosen.seed)
        place = (chosen.device, chosen.threads, chosen.compile, chosen.whole_update, chosen.attention)
        setting = Setting(Path(folder), model, training, vocabulary, *place)
        makers: list[type[Contestant]] = [Own, *(PEERS[peer] for peer in chosen.peers if peer not in absent)]
        measured = compare(makers, setting, chosen.rounds, chosen.updates, chosen.warmup)
    return {
        **settings("throughput.py", arguments, chosen),
        "torch": torch.__version__,
        "pairs": pairs,
        "left_out": absent,
        **measured,
    }


def table(report: Mapping[str, Any]) -> str:
    """Format the report."""
    what = (
        f"{report['size']}, {report['lengths']} lengths, {report['tokens']:,} tokens, dropouts {report['dropouts']}, "
        f"{report['precision']}, {report['batching']}{', compiled' if report['compile'] else ''}; {report['device']}, "
        f"{report['threads']} thread(s), torch {report['torch']}; "
        f"{report['rounds']} rounds of {report['updates']} update(s)"
    )
    peak = report["peak"]
    rows = [["", "weights", "target pieces/s", "per CPU second", "padding", "of peak", "memory"]]
    for name, row in report["contestants"].items():
        memory = f"{row['peak_bytes'] / 2**30:.1f} GiB" if row["peak_bytes"] else "-"
        rows.append(
            [
                name,
                f"{row['parameters'] / 1e6:.1f}M",
                between(row["per_second"], ",.0f"),
                between(row["per_cpu_second"], ",.0f"),
                f"{row['padding']:.1%}",
                f"{row['utilisation']['median']:.1%}",
                memory,
            ]
        )
    ratios = [
        f"{name}: {between(ratio['wall'], '.3f')} by wall time, {between(ratio['cpu'], '.3f')} by CPU seconds"
        for name, ratio in report["ratios"].items()
    ]
    of = f"peak: {peak['flops_per_second'] / 1e12:.3g} TFLOP/s ({peak['by']})"
    flops = next(iter(report["contestants"].values()))["flops_per_target_piece"]
    return "\n".join([what, *aligned(rows), *ratios, f"{of}; {flops / 1e9:.4g} GFLOP a target piece"])


if __name__ == "__main__":
    run_program(measure, table, parse)
