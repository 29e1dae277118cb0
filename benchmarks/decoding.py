"""Measures beam search against peers in one process: ``python benchmarks/decoding.py --help``.

Every output has a fixed length, so that untrained weights do the work of trained ones. Rates are sentences per second
by wall time and by CPU seconds of all threads. Ratios are taken within a round over the same sentences.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.machine import (
    CLOCKS,
    aligned,
    between,
    left_out,
    parser,
    ratios,
    run_program,
    settings,
    spread,
    timed,
    torch_threads,
)

EXAMPLES = """examples:
  python benchmarks/decoding.py --size base --threads 2
  python benchmarks/decoding.py --size tiny --peers ctranslate2 --json
  python benchmarks/decoding.py --size base --device cuda --lengths wmt --peers ''
"""
FIXED = 30
"""Tokens of a source and of its output, with eos, for fixed lengths."""


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    flags = parser("decoding.py", "Speed of beam search and its peers over the same sentences.", EXAMPLES)
    flags.add_argument("--size", default="base", metavar="{tiny,small,base,big}", help="shape and vocabulary (base)")
    flags.add_argument(
        "--lengths",
        choices=("fixed", "multi30k", "wmt"),
        default="fixed",
        help=f"fixed: {FIXED} pieces in and out; else a corpus's, its outputs as long as its references: own alone",
    )
    flags.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    flags.add_argument("--threads", type=int, default=1, help="of a CPU (1)")
    flags.add_argument("--beam", type=int, default=4)
    flags.add_argument("--batch", type=int, default=32, help="sentences of a batch, where lengths are fixed (32)")
    flags.add_argument("--sentences", type=int, default=0, help="of a round (one batch on a CPU; 3,000 on a GPU)")
    flags.add_argument("--rounds", type=int, default=0, help="each decoder once in each (6 on a CPU, 3 on a GPU)")
    flags.add_argument("--peers", default="transformers,ctranslate2,ctranslate2-int8", help="'' for none")
    chosen = flags.parse_args(arguments)
    gpu = chosen.device == "cuda"
    chosen.sentences = chosen.sentences or (3_000 if gpu else chosen.batch)
    chosen.rounds = chosen.rounds or (3 if gpu else 6)
    chosen.peers = [peer for peer in chosen.peers.split(",") if peer]
    return chosen


def measure(arguments: Sequence[str]) -> dict[str, Any]:
    """Return the whole report. Raises ValueError for an unknown size or peer."""
    chosen = parse(arguments)

    import torch

    from benchmarks.comparison import SIZES
    from benchmarks.decoders import PEERS, Decoder, Own, Setting, missing

    def why_not(peer: str) -> str:
        if chosen.lengths != "fixed" and not PEERS[peer].any_length:
            return f"{peer} is left out: it takes no length of each sentence's own"
        return missing(peer)

    absent = left_out(chosen, SIZES, PEERS, why_not)
    model, vocabulary = SIZES[chosen.size]
    setting = Setting(model, vocabulary, chosen.beam, chosen.device, chosen.threads, chosen.seed)
    with torch_threads(chosen.threads):
        makers: list[type[Decoder]] = [Own, *(PEERS[peer] for peer in chosen.peers if peer not in absent)]
        decoders = [make(setting) for make in makers]
        done: dict[str, list[dict[str, float]]] = {decoder.name: [] for decoder in decoders}
        for number in range(-1, chosen.rounds):  # the first warms up
            batches = list(works(chosen, vocabulary, chosen.seed + number))
            for decoder in decoders if number % 2 else reversed(decoders):
                row = decoded(decoder, batches, chosen.device)
                if number >= 0:
                    done[decoder.name].append(row)
    rates = {
        name: {clock: [r["sentences"] / r[clock] for r in rows] for clock in CLOCKS} for name, rows in done.items()
    }
    return {
        **settings("decoding.py", arguments, chosen),
        "torch": torch.__version__,
        "left_out": absent,
        "rounds_done": done,
        "decoders": {name: {clock: spread(of[clock]) for clock in CLOCKS} for name, of in rates.items()},
        "ratios": ratios(rates),
    }


def works(chosen: argparse.Namespace, vocabulary: int, seed: int) -> Iterator[Any]:
    """Yield the batches of a round."""
    import numpy as np
    import torch

    from benchmarks.decoders import Work, draw_sources
    from benchmarks.synthetic import LENGTHS
    from model.decoding.batches import batch_by_length, batch_pieces

    if chosen.lengths == "fixed":
        for begin in range(0, chosen.sentences, chosen.batch):
            count = min(chosen.batch, chosen.sentences - begin)
            yield Work(draw_sources([FIXED - 1] * count, vocabulary, seed * 10_000 + begin), [FIXED] * count)
        return
    sides = LENGTHS[chosen.lengths].draw(np.random.default_rng(seed + 1), chosen.sentences)
    source, target = (side.tolist() for side in sides)
    sources = draw_sources(source, vocabulary, seed + 1)
    pieces = batch_pieces(torch.device(chosen.device))
    for numbers in batch_by_length([length + 1 for length in source], pieces):
        yield Work([sources[n] for n in numbers], [target[n] + 1 for n in numbers])


def decoded(decoder: Any, batches: Sequence[Any], device: str) -> dict[str, float]:
    """Measure a decoder over batches. Raises RuntimeError if an output has a wrong length."""
    import torch

    synchronize = torch.cuda.synchronize if device == "cuda" else lambda: None
    written, seconds = timed(lambda: [decoder.decode(work) for work in batches], synchronize)
    for work, lengths in zip(batches, written, strict=True):
        if list(lengths) != list(work.lengths):
            raise RuntimeError(f"{decoder.name} wrote {lengths} pieces where {work.lengths} were asked for")
    pieces = sum(sum(lengths) for lengths in written)
    return {**seconds, "sentences": sum(len(work.sources) for work in batches), "pieces": pieces}


def table(report: Mapping[str, Any]) -> str:
    """Format the report."""
    what = (
        f"{report['size']}, {report['lengths']} lengths, beam {report['beam']}, {report['rounds']} rounds of "
        f"{report['sentences']:,} sentences, fp32; {report['device']}, {report['threads']} thread(s), "
        f"torch {report['torch']}"
    )
    rows = [["", "sentences/s", "per CPU second", "own, times", "by CPU seconds"]]
    for name, row in report["decoders"].items():
        ratio = report["ratios"].get(f"own/{name}")
        times = [between(ratio[clock], ".2f") for clock in CLOCKS] if ratio else ["", ""]
        rows.append([name, between(row["wall"], ",.2f"), between(row["cpu"], ",.2f"), *times])
    return "\n".join([what, *aligned(rows)])


if __name__ == "__main__":
    run_program(measure, table, parse)
