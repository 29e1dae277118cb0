"""Sets what malloc keeps and how OpenMP's threads wait in a process that computes; reports the machine's load."""

import ctypes
import os
from collections.abc import Mapping

M_TRIM_THRESHOLD = -1
M_MMAP_MAX = -4
M_ARENA_MAX = -8
WAITING = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
"""Variables by which a user chooses how threads wait."""
SPIN_COUNT = "1000"
"""How often a thread looks for work before it sleeps. libgomp's default lasts some milliseconds; that time is wasted
if the other thread waits for a busy core. Measured in ``benchmarks/README.md``, Threads that wait."""
BUSY = 1.5
"""From this load per core, ``load_remark`` reports other programs. The run's own processes stay below it."""


def keep_pages() -> None:
    """Keep freed memory in the heap for reuse, because the kernel has to clear new pages.

    ``infra.launch.job`` sets the same in a job's environment; malloc reads it only when a process starts.
    All threads share one heap, because only the first heap can grow without mmap. Without glibc this does nothing.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return
    mallopt(M_ARENA_MAX, 1)
    mallopt(M_MMAP_MAX, 0)
    mallopt(M_TRIM_THRESHOLD, 2**31 - 1)  # the largest int


def thread_waiting(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for the wait of OpenMP's threads: the user's if set, else a short active wait.

    libgomp reads them when torch is imported.
    """
    return {name: environment[name] for name in WAITING if name in environment} or {"GOMP_SPINCOUNT": SPIN_COUNT}


def load_remark() -> str:
    """Return ``load 6.1 on 2 cores`` if other programs keep the cores of this machine busy, otherwise ""."""
    cores = os.cpu_count() or 1
    load, _, _ = os.getloadavg()
    return f"load {load:.1f} on {cores} cores" if load >= BUSY * cores else ""
