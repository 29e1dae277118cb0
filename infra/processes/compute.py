"""Settings of a process that computes: what malloc keeps, how OpenMP's threads wait, how busy the cores are."""

import ctypes
import os
import sys
from collections.abc import Mapping

M_TRIM_THRESHOLD = -1
M_MMAP_MAX = -4
M_ARENA_MAX = -8
GREATEST = 2**31 - 1
WAITING = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
"""Variables by which a user chooses how threads wait."""
SPIN_COUNT = "1000"
"""How often a thread looks for work before it sleeps. By libgomp's default it looks for some milliseconds, in vain if
the other thread waits for a core that another program has. Measured in ``benchmarks/README.md``, Threads that wait."""
BUSY = 1.5
"""Load for each core from which other programs are said to slow the work down; the run's own processes stay below."""


def keep_pages() -> None:
    """Keep freed memory in the heap for reuse, because the kernel has to clear new pages.

    ``infra.launch.job`` sets the same in a job's environment, which malloc reads only at the start of a process.
    One heap serves all threads, because only the first can grow without mmap. Without glibc this does nothing.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return
    mallopt(M_ARENA_MAX, 1)
    mallopt(M_MMAP_MAX, 0)
    mallopt(M_TRIM_THRESHOLD, GREATEST)


def thread_waiting(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that say how OpenMP's threads wait: the user's where there are any, else a short active wait.

    libgomp reads them when torch is imported.
    """
    return {name: environment[name] for name in WAITING if name in environment} or {"GOMP_SPINCOUNT": SPIN_COUNT}


def load_remark() -> str:
    """``load 6.1 on 2 cores`` if other programs keep the cores of this machine busy, otherwise empty."""
    cores = os.cpu_count() or 1
    load, _, _ = os.getloadavg()
    return f"load {load:.1f} on {cores} cores" if load >= BUSY * cores else ""
