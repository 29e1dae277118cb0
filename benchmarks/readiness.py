"""Measures time and memory until a training over a corpus of WMT14's size has its first batch.

    python benchmarks/readiness.py                  4,500,000 synthetic pairs; target: under 20 s and 2 GiB

One process writes the corpus; a second opens the shards, checks the tokens, plans, orders the first epoch and loads a
batch. Its memory is the kernel's high-water mark, which counts mapped pages that the kernel could take back.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.machine import PROJECT_ROOT

VOCABULARY = 37_000
BUDGET = 25_000


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pairs", type=int, default=4_500_000)
    parser.add_argument("--folder", default="", help="for the corpus, removed at the end (the temporary folder)")
    parser.add_argument("--do", choices=("all", "make", "measure"), default="all", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.do == "make":
        make(Path(chosen.folder), chosen.pairs)
    elif chosen.do == "measure":
        print(json.dumps(measure(Path(chosen.folder))))
    else:
        with tempfile.TemporaryDirectory(prefix="readiness-", dir=chosen.folder or None) as folder:
            run_part("make", folder, chosen.pairs)
            print(
                json.dumps({"pairs": chosen.pairs, **json.loads(run_part("measure", folder, chosen.pairs))}, indent=1)
            )


def run_part(do: str, folder: str, pairs: int) -> str:
    """Run one part in its own process and return what it prints."""
    command = [sys.executable, __file__, "--do", do, "--folder", folder, "--pairs", str(pairs)]
    env = os.environ | {"PYTHONPATH": str(PROJECT_ROOT)}
    return subprocess.run(command, env=env, stdout=subprocess.PIPE, check=True, text=True).stdout


def make(folder: Path, pairs: int) -> None:
    from benchmarks.synthetic import LENGTHS, write_shards

    write_shards(folder / "shards", LENGTHS["wmt"], pairs, VOCABULARY, seed=1)


def measure(folder: Path) -> dict[str, float]:
    """Measure the seconds of each step and of all, and the memory in GiB."""
    started = time.perf_counter()
    seconds: dict[str, float] = {}

    def lap(name: str) -> None:
        seconds[name] = time.perf_counter() - started - sum(seconds.values())

    from model.data.batches import BatchSampler, Cursor, load_padded
    from model.data.shards import Shards

    lap("imports")
    used = time.process_time()
    imported = memory()
    shards = Shards(folder / "shards")
    lap("open")
    for side in ("source", "target"):
        shards.check_pieces(side, VOCABULARY)
    lap("check_pieces")
    plan = BatchSampler(shards, BUDGET, seed=1)
    lap("plan")
    before = memory()
    rows, _ = next(plan.batches_from(Cursor()))
    lap("first_epoch")
    load_padded(shards, rows)
    lap("first_batch")
    marks = {"imports": imported, "before_first_epoch": before, "end": memory()}
    return {
        "seconds": sum(seconds.values()) - seconds["imports"],
        "cpu_seconds": time.process_time() - used,
        "gibibytes": marks["end"]["VmHWM"],
        **{f"seconds_{name}": value for name, value in seconds.items()},
        **{f"gibibytes_{name}_{kind}": value for name, mark in marks.items() for kind, value in mark.items()},
    }


def memory() -> dict[str, float]:
    """Return this process's high-water mark and its anonymous and mapped memory, in GiB."""
    lines = (line.split() for line in Path("/proc/self/status").read_text().splitlines())
    kinds = ("VmHWM:", "RssAnon:", "RssFile:")
    return {line[0].rstrip(":"): int(line[1]) / 2**20 for line in lines if line and line[0] in kinds}


if __name__ == "__main__":
    main()
