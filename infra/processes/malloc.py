"""Memory of large tensors, for a process that computes without having been started as a job."""

import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_MAX, M_ARENA_MAX = -1, -4, -8
GREATEST = 2**31 - 1


def keep_pages() -> None:
    """Let freed memory come back from the heap instead of from fresh pages, which the kernel would have to clear.

    It is what ``infra.launch.local`` sets in a job's environment, which malloc reads only at a process's start. One
    heap serves all threads, as only the first one's can grow by itself. Without glibc nothing is done.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return
    mallopt(M_ARENA_MAX, 1)
    mallopt(M_MMAP_MAX, 0)
    mallopt(M_TRIM_THRESHOLD, GREATEST)
