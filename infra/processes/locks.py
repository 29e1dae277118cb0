"""One holder at a time, on one host: kernel locks that vanish with the process that held them."""

import fcntl
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from infra.processes import signals

POLL_SECONDS = 0.1


@contextmanager
def try_file_lock(path: Path) -> Iterator[bool]:
    """Whether nobody holds the lock file ``path``; if so, it is held for the length of the block."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            free = True
        except BlockingIOError:
            free = False
        yield free
    finally:
        os.close(descriptor)


@contextmanager
def file_lock(path: Path, on_wait: Callable[[str], None]) -> Iterator[int]:
    """Hold the lock file ``path``; yields its descriptor, so that a child can be made to hold it as well.

    While somebody else holds it, waits, and tells ``on_wait`` once who that is.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        waiting = False
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not waiting:
                    on_wait(os.pread(descriptor, 200, 0).decode(errors="replace").strip() or "another process")
                waiting = True
                signals.check()
                time.sleep(POLL_SECONDS)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)
        yield descriptor
    finally:
        os.close(descriptor)
