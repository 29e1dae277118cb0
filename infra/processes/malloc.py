"""malloc settings for large tensors, for a process that computes but was not started as a job."""

import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_MAX, M_ARENA_MAX = -1, -4, -8
GREATEST = 2**31 - 1


def keep_pages() -> None:
    """Keep freed memory in the heap for reuse, because the kernel has to clear new pages.

    ``infra.launch.command`` sets the same in a job's environment, which malloc reads only at the start of a process.
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
