"""Seconds, pairs a second and memory of the preparation, stage by stage: ``python benchmarks/preparation.py --help``.

The text is made first (benchmarks/text.py). Each stage then runs in a process of its own, which reports its wall and
CPU seconds and the most memory that it ever held, mapped files counted; with --workers, its workers' seconds as well,
and for each of them as much memory as the one that held most. With --peers the cleaning takes turns with bare
polars (streaming) and pandas, which read the same files, do the same filters and write Parquet, and drop repeats by a
64-bit value as it does; they neither number, shuffle nor keep what they reject.
"""

import argparse
import json
import os
import platform
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.machine import HOUSE, aligned, between, processor, spread

EXAMPLES = """examples:
  python benchmarks/preparation.py --pairs 1000000 --threads 2 --peers
  python benchmarks/preparation.py --pairs 4500000 --threads 2 --json
"""
STAGES = ("clean", "learn_bpe", "shard", "encode")
PEERS = ("polars", "pandas")
VOCABULARY = 37_000
ENCODED_LINES = 100_000
"""Lines over which encoding is compared with the library's."""


def options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="preparation.py",
        description="Speed and memory of cleaning, BPE and shards over made-up text of WMT14's lengths.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--pairs", type=int, default=1_000_000)
    parser.add_argument("--threads", type=int, default=1, help="of every library (1)")
    parser.add_argument("--workers", type=int, default=1, help="processes of each stage (1)")
    parser.add_argument("--peers", action="store_true", help="clean against bare polars and pandas as well")
    parser.add_argument("--rounds", type=int, default=3, help="of the cleaning, where it has peers (3)")
    parser.add_argument("--folder", default="", help="where text and results lie for a while (the temporary folder)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--json", nargs="?", const="-", default="", metavar="FILE", help="write everything there (standard output)"
    )
    parser.add_argument("--do", default="", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def measure(arguments: Sequence[str]) -> dict[str, Any]:
    """The whole report."""
    chosen = options(arguments)
    from infra.tracking.provenance import commit

    with tempfile.TemporaryDirectory(prefix="preparation-", dir=chosen.folder or None) as name:
        folder = Path(name)
        again("make", folder, chosen)
        stages = {stage: again(stage, folder, chosen) for stage in STAGES}
        peers: dict[str, list[dict[str, Any]]] = {}
        for _ in range(chosen.rounds if chosen.peers else 0):
            for peer in ("same", *PEERS):
                peers.setdefault(peer, []).append(again(peer, folder, chosen))
    whole = {clock: sum(stages[stage][clock] for stage in STAGES[:3]) for clock in ("wall", "cpu")}
    return {
        "command": shlex.join(["python", "benchmarks/preparation.py", *arguments]),
        "commit": commit(),
        "python": platform.python_version(),
        "device": processor(),
        "pairs": chosen.pairs,
        "threads": chosen.threads,
        "workers": chosen.workers,
        "stages": stages,
        "whole": {**whole, "pairs_per_cpu_second": chosen.pairs / whole["cpu"]},
        "cleaning": {
            peer: {clock: spread([chosen.pairs / row[clock] for row in rows]) for clock in ("wall", "cpu")}
            | {"kept": rows[0]["kept"], "mib": max(row["mib"] for row in rows)}
            for peer, rows in peers.items()
        },
        "ratios": {
            f"own/{peer}": {
                clock: spread([b[clock] / a[clock] for a, b in zip(peers["same"], peers[peer], strict=True)])
                for clock in ("wall", "cpu")
            }
            for peer in PEERS
            if peers
        },
    }


def again(what: str, folder: Path, chosen: argparse.Namespace) -> dict[str, Any]:
    """One part in a process of its own."""
    threads = str(chosen.threads)
    names = ("POLARS_MAX_THREADS", "RAYON_NUM_THREADS", "OMP_NUM_THREADS", "OMP_THREAD_LIMIT", "ARROW_NUM_THREADS")
    words = ["--do", what, "--folder", str(folder), "--pairs", str(chosen.pairs), "--seed", str(chosen.seed)]
    workers = str(chosen.workers)
    done = subprocess.run(
        [sys.executable, __file__, *words, "--threads", threads, "--workers", workers],
        env=os.environ | dict.fromkeys(names, threads) | {"PYTHONPATH": str(HOUSE), "REPRO_WORKERS": workers},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def part(chosen: argparse.Namespace) -> dict[str, Any]:
    """Do one part in this process, with the clocks running."""
    from benchmarks import cleaners

    folder = Path(chosen.folder)
    if chosen.do == "make":
        from benchmarks.text import write_text

        write_text(folder, chosen.pairs, chosen.seed)
        return {}
    wall, cpu = time.perf_counter(), cpu_seconds()
    facts = {"learn_bpe": learn, "shard": shards, "encode": encode}.get(chosen.do, cleaners.CLEANERS.get(chosen.do))
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
    """Of this process and of those it has waited for."""
    return sum(os.times()[:4])


def learn(folder: Path) -> dict[str, Any]:
    from infra.store.local import Artifact
    from tasks.stages.learn_bpe import Vocabulary, learn_bpe

    (folder / "learn_bpe").mkdir()
    corpus = Artifact("clean", "made-up", folder / "clean")
    return dict(learn_bpe.body(folder / "learn_bpe", corpus, Vocabulary(size=VOCABULARY)))


def shards(folder: Path) -> dict[str, Any]:
    from infra.store.local import Artifact
    from tasks.stages.shard import Sharding, shard

    (folder / "shard").mkdir()
    corpus, vocabulary = (Artifact(stage, "made-up", folder / stage) for stage in ("clean", "learn_bpe"))
    return dict(shard.body(folder / "shard", corpus, vocabulary, Sharding()))


def encode(folder: Path) -> dict[str, Any]:
    """Lines a CPU second of the project's way and of the library's; the ids are the same, or this fails."""
    import pyarrow.parquet as pq

    from model.data.bpe import TokenizerPair
    from tasks.bpe.word_cache import WordCache

    tokenizer = TokenizerPair.load(folder / "learn_bpe").source
    batch = next(pq.ParquetFile(folder / "clean" / "pairs.parquet").iter_batches(ENCODED_LINES, columns=["source"]))
    lines = batch.column("source").cast("string")
    table = WordCache(tokenizer)
    began = time.process_time()
    mine = table.encode(lines)
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
    """The report for people."""
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
    chosen = options(arguments)
    if chosen.do:
        print(json.dumps(part(chosen)))
        return
    report = measure(arguments)
    print(table(report), file=sys.stderr if chosen.json == "-" else sys.stdout)
    if chosen.json == "-":
        print(json.dumps(report, indent=1))
    elif chosen.json:
        Path(chosen.json).write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
