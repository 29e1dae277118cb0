"""The parts that all benchmarks share: the environment, facts about the machine, the command line and the report."""

import argparse
import json
import os
import platform
import shlex
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

PROJECT_ROOT = Path(__file__).resolve().parents[1]
ALLOCATOR = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "4294967296"}
"""The settings of malloc that the local launcher gives jobs (infra/launch/local.py); peers get them too."""


Measure = Callable[[Sequence[str]], Mapping[str, Any]]
Parse = Callable[[Sequence[str]], argparse.Namespace]


def restart_as_job() -> None:
    """Restart this program with the environment of a job if needed: malloc reads its settings only once."""
    search = os.pathsep.join(filter(None, [str(PROJECT_ROOT), os.environ.get("PYTHONPATH", "")]))
    if any(os.environ.get(name) != value for name, value in ALLOCATOR.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **ALLOCATOR, "PYTHONPATH": search})


def processor() -> str:
    """Return the processor's name and the instruction sets that decide the speed of matrix products."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    named = dict(line.split(":", 1) for line in reversed(lines) if ":" in line)
    named = {name.strip(): value.strip() for name, value in named.items()}
    sets = [name for name in ("avx2", "avx512f", "amx_bf16") if name in named.get("flags", "").split()]
    return " ".join([named.get("model name", platform.processor()), *sets])


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return median, least and greatest value."""
    return {"median": statistics.median(values), "least": min(values), "most": max(values)}


def between(values: Mapping[str, float], form: str) -> str:
    """Format a ``spread``."""
    return f"{values['median']:{form}} ({values['least']:{form}}–{values['most']:{form}})"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Format the rows of a table, columns aligned to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]


def parser(program: str, description: str, examples: str) -> argparse.ArgumentParser:
    """Return a parser with the options ``--seed``, ``--json`` and ``--commit``, which every benchmark has."""
    made = argparse.ArgumentParser(
        prog=program,
        description=description,
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--seed", type=int, default=1)
    made.add_argument(
        "--json", nargs="?", const="-", default="", metavar="FILE", help="write the report there (stdout)"
    )
    made.add_argument("--commit", default="", metavar="ID", help="of this code, where it is no checkout of git")
    return made


def provenance(program: str, arguments: Sequence[str], commit: str) -> dict[str, Any]:
    """Return the command, the commit and the Python version for a report. An empty ``commit`` means that of git."""
    if not commit:
        from infra.tracking import provenance

        commit = provenance.commit()
    command = shlex.join(["python", f"benchmarks/{program}", *arguments])
    return {"command": command, "commit": commit, "python": platform.python_version()}


def settings(program: str, arguments: Sequence[str], chosen: argparse.Namespace) -> dict[str, Any]:
    """Return what a report says of its circumstances: provenance, device, allocator and all options."""
    options = {name: value for name, value in vars(chosen).items() if name not in ("device", "json", "serve", "commit")}
    device = processor()
    if getattr(chosen, "device", "cpu") == "cuda":
        import torch

        device = torch.cuda.get_device_name()
    return {**provenance(program, arguments, chosen.commit), "device": device, "allocator": ALLOCATOR, **options}


def run_program(measure: Measure, table: Callable[[Mapping[str, Any]], str], parse: Parse) -> None:
    """Measure by the words of the command line, in the environment of a job, and write the report."""
    restart_as_job()
    arguments = sys.argv[1:]
    write_report(measure(arguments), table, parse(arguments).json)


def write_report(report: Mapping[str, Any], table: Callable[[Mapping[str, Any]], str], file: str) -> None:
    """Print the table, and write the report as JSON to a file or, for ``-``, to stdout."""
    print(table(report), file=sys.stderr if file == "-" else sys.stdout)
    if file == "-":
        print(json.dumps(report, indent=1))
    elif file:
        Path(file).write_text(json.dumps(report, indent=1) + "\n")
