"""The parts that all benchmarks share: the environment, facts about the machine, the command line and the report."""

import argparse
import json
import os
import platform
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

PROJECT_ROOT = Path(__file__).resolve().parents[1]
ALLOCATOR = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "4294967296"}
"""The settings of malloc that the local launcher gives jobs (infra/launch/local.py); peers get them too."""

T = TypeVar("T")
CLOCKS = ("wall", "cpu")
"""Seconds by the wall clock, and CPU seconds of all threads of the process."""
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


def percentiles(seconds: Sequence[float]) -> dict[str, float]:
    """Return p50 and p99 in milliseconds."""
    ordered = sorted(seconds)
    return {f"p{p}": round(1000 * ordered[min(len(ordered) - 1, len(ordered) * p // 100)], 3) for p in (50, 99)}


def ratios(rates: Mapping[str, Mapping[str, Sequence[float]]]) -> dict[str, dict[str, dict[str, float]]]:
    """The spread of the first one's rates over each other one's, round by round, for each clock: ``own/peer``."""
    first, *others = rates
    return {
        f"{first}/{other}": {
            clock: spread([a / b for a, b in zip(rates[first][clock], rates[other][clock], strict=True)])
            for clock in CLOCKS
        }
        for other in others
    }


def timed(work: Callable[[], T], synchronize: Callable[[], object] = lambda: None) -> tuple[T, dict[str, float]]:
    """Do some work: its result, and its seconds by each clock. ``synchronize`` waits for a GPU."""
    synchronize()
    wall = time.perf_counter()
    cpu = time.process_time()
    result = work()
    synchronize()
    return result, {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}


def left_out(
    chosen: argparse.Namespace, sizes: Collection[str], peers: Collection[str], missing: Callable[[str], str]
) -> dict[str, str]:
    """Why peers cannot run, by name; also printed. Raises ValueError for an unknown size or peer."""
    from model.config.keying import require

    require(chosen.size in sizes, "--size", chosen.size, ", ".join(sizes))
    for peer in chosen.peers:
        require(peer in peers, "--peers", peer, ", ".join(peers))
    reasons = {peer: missing(peer) for peer in chosen.peers if missing(peer)}
    for reason in reasons.values():
        print(reason, file=sys.stderr, flush=True)
    return reasons


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Let torch compute with so many threads."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


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
        prog=program, description=description, epilog=examples, formatter_class=argparse.RawDescriptionHelpFormatter
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
    options = {
        name: value for name, value in vars(chosen).items() if name not in ("device", "json", "serve", "do", "commit")
    }
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
