"""CPU seconds and peak memory of commands on a root that grows: ``python benchmarks/scaling.py --help``.

The root has a real run, with few updates, whose plan is all hits, and made-up runs of 20 artifacts, a record and a
version each (benchmarks/large_root.py). Each command is a process of its own; its CPU seconds are those of its whole
tree, its memory the greatest resident set of one process of it, mapped files included. The least of both counts.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.machine import PROJECT_ROOT, aligned, parser, run_program, settings

REPRO = [sys.executable, "-c", "from flows.cli import main; main()"]
REAL = ("demo", "--set", "training.updates=4", "--set", "averaging.count=1")
"""The run whose plan is measured."""
COMMANDS = {
    "plan": ("plan", *REAL, "--json"),
    "history": ("history", "--since", "2025-01-01"),
    "status": ("status", "--close"),
    "gc": ("gc", "--json"),
    "site": ("site", "--out", "{}"),
}
EXAMPLES = "for example: python benchmarks/scaling.py --runs 10 100 1000 10000"


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    options = parser("scaling.py", "Commands on a root that grows.", EXAMPLES)
    options.add_argument("--runs", type=int, nargs="+", default=[10, 100, 1000, 10_000], help="ascending")
    options.add_argument("--repeat", type=int, default=3, help="times that each command runs; the site is made once")
    options.add_argument("--commands", nargs="+", default=[*COMMANDS], choices=COMMANDS)
    options.add_argument("--root", default="", help="a folder for the root, which stays; it may have the real run")
    return options.parse_args(arguments)


def measure(arguments: Sequence[str]) -> dict[str, Any]:
    """Return the whole report."""
    asked = parse(arguments)
    with tempfile.TemporaryDirectory(prefix="scaling-") as folder:
        root = Path(asked.root or folder, "root")
        if "plan" in asked.commands:
            make_real_run(root)
        found = {}
        for before, runs in zip([0, *asked.runs], asked.runs, strict=False):
            grow(root, before, runs)
            found[runs] = {name: least(root, name, asked.repeat) for name in asked.commands}
            print(runs, json.dumps(found[runs]), file=sys.stderr, flush=True)
    return {**settings("scaling.py", arguments, asked), "found": found}


def make_real_run(root: Path) -> None:
    """Execute the run whose plan is measured, and make sure that its stages are hits."""
    for words in (("run", *REAL), ("plan", *REAL, "--json")):
        output = subprocess.run([*REPRO, *words], env=environment(root), check=True, stdout=subprocess.PIPE).stdout
    states = {stage["state"] for stage in json.loads(output)["stages"]}
    if states != {"cached"}:
        raise SystemExit(f"the stages of {' '.join(REAL)} are {', '.join(sorted(states))}, not all hits")


def grow(root: Path, before: int, runs: int) -> None:
    """Add runs in a process of its own: Linux counts what this one holds at a start as memory of what it starts."""
    from benchmarks.large_root import add_runs

    process = get_context("spawn").Process(target=add_runs, args=(root, before, runs))
    process.start()
    process.join()
    if process.exitcode:
        raise SystemExit(f"making {runs} runs ended with {process.exitcode}")


def environment(root: Path) -> dict[str, str]:
    return {**os.environ, "REPRO_ROOT": str(root), "PYTHONPATH": str(PROJECT_ROOT)}


def least(root: Path, name: str, repeat: int) -> dict[str, float]:
    """The least CPU seconds and MiB of a command."""
    found = []
    for _ in range(1 if name == "site" else repeat):
        with tempfile.TemporaryDirectory(prefix="site-") as out:
            found.append(cost(root, *(word.format(out) for word in COMMANDS[name])))
    return {what: min(each[what] for each in found) for what in ("cpu", "mib")}


def cost(root: Path, *words: str) -> dict[str, float]:
    """CPU seconds and MiB of ``repro`` with these words."""
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen([*REPRO, *words], env=environment(root), stdout=subprocess.DEVNULL, stderr=said)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            said.seek(0)
            raise SystemExit(f"repro {' '.join(words)} ended with {process.returncode}: {said.read()[-2000:]}")
    return {"cpu": round(usage.ru_utime + usage.ru_stime, 2), "mib": usage.ru_maxrss >> 10}


def table(report: Mapping[str, Any]) -> str:
    """Format the report."""
    rows = [["runs", *report["commands"]]]
    for runs, found in report["found"].items():
        rows.append([f"{runs:,}", *(f"{each['cpu']:.2f} CPU s, {each['mib']:.0f} MiB" for each in found.values())])
    return "\n".join([report["device"], *aligned(rows)])


if __name__ == "__main__":
    run_program(measure, table, parse)
