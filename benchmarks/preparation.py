"""Measures time and memory of cleaning, BPE and sharding: ``python benchmarks/preparation.py --help``.

Each stage runs on synthetic text (benchmarks/text.py) in its own process, which reports wall and CPU seconds and peak
memory with mapped files; with --workers the workers' seconds and, for each, the greatest memory of one are added. With
--peers, plain polars (streaming) and pandas clean the same files with the same filters and 64-bit hashes; they do not
number, shuffle or keep rejected pairs; and tokenizers' trainer learns pieces from the cleaned text.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.machine import CLOCKS, PROJECT_ROOT, aligned, between, parser, ratios, settings, spread, write_report

EXAMPLES = """examples:
  python benchmarks/preparation.py --pairs 1000000 --threads 2 --peers
  python benchmarks/preparation.py --pairs 4500000 --threads 2 --json
"""
STAGES = ("clean", "learn_bpe", "shard", "encode")
PEERS = ("polars", "pandas")
ENCODED_LINES = 100_000
"""Lines over which encoding is compared with the library."""


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    flags = parser("preparation.py", "Speed and memory of cleaning, BPE and sharding.", EXAMPLES)
    flags.add_argument("--pairs", type=int, default=1_000_000)
    flags.add_argument("--pieces", type=int, default=37_000, help="of the vocabulary (37000, of 40,000 pairs or more)")
    flags.add_argument("--threads", type=int, default=1, help="of every library (1)")
    flags.add_argument("--workers", type=int, default=1, help="processes of each stage (1)")
    flags.add_argument("--peers", action="store_true", help="clean against bare polars and pandas as well")
    flags.add_argument("--rounds", type=int, default=3, help="of the cleaning, where it has peers (3)")
    flags.add_argument("--folder", default="", help="where text and results lie for a while (the temporary folder)")
    flags.add_argument("--do", default="", help=argparse.SUPPRESS)
    return flags.parse_args(arguments)


def measure(arguments: Sequence[str]) -> dict[str, Any]:
    """Return the whole report."""
    chosen = parse(arguments)
    with tempfile.TemporaryDirectory(prefix="preparation-", dir=chosen.folder or None) as name:
        folder = Path(name)
        run_part("make", folder, chosen)
        stages = {stage: run_part(stage, folder, chosen) for stage in STAGES}
        learning = run_part("tokenizers", folder, chosen) if chosen.peers else {}
        peers: dict[str, list[dict[str, Any]]] = {}
        for _ in range(chosen.rounds if chosen.peers else 0):
            for peer in ("same", *PEERS):
                peers.setdefault(peer, []).append(run_part(peer, folder, chosen))
    whole = {clock: sum(stages[stage][clock] for stage in STAGES[:3]) for clock in ("wall", "cpu")}
    rates = {
        peer: {clock: [chosen.pairs / row[clock] for row in rows] for clock in CLOCKS} for peer, rows in peers.items()
    }
    return {
        **settings("preparation.py", arguments, chosen),
        "stages": stages,
        "learning": learning,
        "whole": {**whole, "pairs_per_cpu_second": chosen.pairs / whole["cpu"]},
        "cleaning": {
            peer: {clock: spread(rates[peer][clock]) for clock in CLOCKS}
            | {"kept": rows[0]["kept"], "mib": max(row["mib"] for row in rows)}
            for peer, rows in peers.items()
        },
        "ratios": ratios({"own" if peer == "same" else peer: of for peer, of in rates.items()}) if rates else {},
    }


def run_part(what: str, folder: Path, chosen: argparse.Namespace) -> dict[str, Any]:
    """Run one part in its own process and return what it measured."""
    threads = str(chosen.threads)
    names = ("POLARS_MAX_THREADS", "RAYON_NUM_THREADS", "OMP_NUM_THREADS", "OMP_THREAD_LIMIT", "ARROW_NUM_THREADS")
    words = ["--do", what, "--folder", str(folder), "--pieces", str(chosen.pieces)]
    words += ["--pairs", str(chosen.pairs), "--seed", str(chosen.seed)]
    workers = str(chosen.workers)
    done = subprocess.run(
        [sys.executable, __file__, *words, "--threads", threads, "--workers", workers],
        env=os.environ | dict.fromkeys(names, threads) | {"PYTHONPATH": str(PROJECT_ROOT), "REPRO_WORKERS": workers},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def part(chosen: argparse.Namespace) -> dict[str, Any]:
    """Run and measure one part in this process."""
    from benchmarks import cleaners

    folder = Path(chosen.folder)
    if chosen.do == "make":
        from benchmarks.text import write_text

        write_text(folder, chosen.pairs, chosen.seed)
        return {}
    wall = time.perf_counter()
    cpu = cpu_seconds()
    parts: dict[str, Callable[[Path], dict[str, Any]]] = {
        "learn_bpe": partial(learn, chosen.pieces),
        "tokenizers": partial(learn_by_tokenizers, chosen.pieces),
        "shard": shards,
        "encode": encode,
    }
    facts = parts.get(chosen.do, cleaners.CLEANERS.get(chosen.do))
    assert facts, chosen.do
    found = facts(folder)
    most = [resource.getrusage(whose).ru_maxrss for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return {
        **found,
        "wall": time.perf_counter() - wall,
        "cpu": cpu_seconds() - cpu,
        "mib": (most[0] + most[1] * (chosen.workers if chosen.workers > 1 else 0)) >> 10,
    }


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and its finished children."""
    return sum(os.times()[:4])


def learn(pieces: int, folder: Path) -> dict[str, Any]:
    from infra.store.store import Artifact
    from tasks.stages.learn_bpe import Vocabulary, learn_bpe

    (folder / "learn_bpe").mkdir()
    corpus = Artifact("clean", "made-up", folder / "clean")
    return dict(learn_bpe.body(folder / "learn_bpe", corpus, Vocabulary(size=pieces)))


def learn_by_tokenizers(pieces: int, folder: Path) -> dict[str, Any]:
    """The library's trainer over the same text, split and normalised alike."""
    import pyarrow.parquet as pq
    from tokenizers import pre_tokenizers, trainers

    from model.config.special_pieces import SPECIAL_TOKENS
    from tasks.stages.learn_bpe import Vocabulary, untrained_tokenizer

    tokenizer = untrained_tokenizer(Vocabulary(size=pieces))
    trainer = trainers.BpeTrainer(
        vocab_size=pieces,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    batches = pq.ParquetFile(folder / "clean" / "pairs.parquet").iter_batches(columns=["source", "target"])
    lines = (column.to_pylist() for batch in batches for column in batch.columns)
    tokenizer.train_from_iterator(lines, trainer)
    return {"size": tokenizer.get_vocab_size()}


def shards(folder: Path) -> dict[str, Any]:
    from infra.store.store import Artifact
    from tasks.stages.shard import Sharding, shard

    (folder / "shard").mkdir()
    corpus, vocabulary = (Artifact(stage, "made-up", folder / stage) for stage in ("clean", "learn_bpe"))
    return dict(shard.body(folder / "shard", corpus, vocabulary, Sharding()))


def encode(folder: Path) -> dict[str, Any]:
    """Measure lines per CPU second of this project and of the library. Raises RuntimeError if the ids differ."""
    import pyarrow.parquet as pq

    from model.data.bpe import TokenizerPair
    from tasks.bpe.word_cache import WordCache

    tokenizer = TokenizerPair.load(folder / "learn_bpe").source
    batch = next(pq.ParquetFile(folder / "clean" / "pairs.parquet").iter_batches(ENCODED_LINES, columns=["source"]))
    lines = batch.column("source").cast("string")
    table = WordCache(tokenizer)
    began = time.process_time()
    (mine,) = table.encode([lines])
    seconds = time.process_time() - began
    text = lines.to_pylist()
    began = time.process_time()
    theirs = [each.ids for each in tokenizer.encode_batch_fast(text, add_special_tokens=False)]
    library = time.process_time() - began
    if mine.lengths.tolist() != [len(ids) for ids in theirs] or mine.ids.tolist() != [i for ids in theirs for i in ids]:
        raise RuntimeError("the ids differ from the library's")
    return {
        "lines": len(text),
        "own": len(text) / seconds,
        "tokenizers": len(text) / library,
        "ratio": library / seconds,
    }


def table(report: Mapping[str, Any]) -> str:
    """Format the report."""
    what = (
        f"{report['pairs']:,} pairs, {report['threads']} thread(s), {report['workers']} worker(s), {report['device']}"
    )
    rows = [["", "seconds", "CPU seconds", "pairs/s", "pairs/CPU s", "peak memory"]]
    for stage in STAGES[:3]:
        row = report["stages"][stage]
        rates = [f"{report['pairs'] / row[clock]:,.0f}" for clock in ("wall", "cpu")]
        rows.append([stage, f"{row['wall']:,.1f}", f"{row['cpu']:,.1f}", *rates, f"{row['mib']:,} MiB"])
    whole = report["whole"]
    rates = [f"{report['pairs'] / whole[clock]:,.0f}" for clock in ("wall", "cpu")]
    rows.append(["together", f"{whole['wall']:,.1f}", f"{whole['cpu']:,.1f}", *rates, ""])
    encode = report["stages"]["encode"]
    lines = [what, *aligned(rows), f"encoding: {encode['own']:,.0f} lines a CPU second, {encode['ratio']:.2f} times"]
    lines[-1] += f" encode_batch_fast's {encode['tokenizers']:,.0f}"
    if report["learning"]:
        own = report["stages"]["learn_bpe"]
        peer = report["learning"]
        lines.append(
            f"learning pieces: tokenizers' trainer {peer['cpu']:,.1f} CPU seconds and {peer['mib']:,} MiB, "
            f"{peer['cpu'] / own['cpu']:.2f} and {peer['mib'] / own['mib']:.2f} times as much"
        )
    if report["cleaning"]:
        rows = [["cleaning, same filters", "pairs/s", "pairs/CPU s", "own, times", "by CPU seconds", "memory", "kept"]]
        for peer, row in report["cleaning"].items():
            ratio = report["ratios"].get(f"own/{peer}")
            times = [between(ratio[clock], ".2f") if ratio else "" for clock in ("wall", "cpu")]
            rates = [between(row[clock], ",.0f") for clock in ("wall", "cpu")]
            name = "own" if peer == "same" else peer
            rows.append([name, *rates, *times, f"{row['mib']:,} MiB", f"{row['kept']:,}"])
        lines += ["", *aligned(rows)]
    return "\n".join(lines)


def main() -> None:
    arguments = sys.argv[1:]
    chosen = parse(arguments)
    if chosen.do:
        print(json.dumps(part(chosen)))
        return
    write_report(measure(arguments), table, chosen.json)


if __name__ == "__main__":
    main()
