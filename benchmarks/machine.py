"""What every measurement here needs to know of the machine, and to have of it."""

import os
import platform
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

HOUSE = Path(__file__).resolve().parents[1]
ALLOCATOR = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "4294967296"}
"""As the local launcher sets it for jobs (infra/launch/local.py); peers get the same."""


def at_home() -> None:
    """Start this program again where its environment is not yet that of a job: malloc reads it once only."""
    search = os.pathsep.join(filter(None, [str(HOUSE), os.environ.get("PYTHONPATH", "")]))
    if any(os.environ.get(name) != value for name, value in ALLOCATOR.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **ALLOCATOR, "PYTHONPATH": search})


def processor() -> str:
    """Name and instruction sets that decide the speed of products; empty where the system does not tell."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    named = dict(line.split(":", 1) for line in reversed(lines) if ":" in line)
    named = {name.strip(): value.strip() for name, value in named.items()}
    sets = [name for name in ("avx2", "avx512f", "amx_bf16") if name in named.get("flags", "").split()]
    return " ".join([named.get("model name", platform.processor()), *sets])


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, least and most."""
    return {"median": statistics.median(values), "least": min(values), "most": max(values)}


def between(values: Mapping[str, float], form: str) -> str:
    """A ``spread`` for people."""
    return f"{values['median']:{form}} ({values['least']:{form}}–{values['most']:{form}})"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of a table as lines, columns to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
