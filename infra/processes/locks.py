"""File locks on one host. The kernel releases a lock when the process that holds it ends."""

import fcntl
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from infra.processes import signals

POLL_SECONDS = 0.1
REMINDER_SECONDS = 60.0


def try_lock(descriptor: int) -> bool:
    """Lock an open file without waiting; returns whether that succeeded."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_locked(path: Path | str) -> bool:
    """Whether a process holds the lock of the file ``path``, which may belong to another user."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)


def lock_holder(path: Path) -> str:
    """Return the process that holds the lock of the file ``path``, as ``process 708 on vm``; "" if none does."""
    return (path.read_text(errors="replace").strip() or "another process") if is_locked(path) else ""


def wait_for(is_ready: Callable[[], bool], on_wait: Callable[[], None]) -> None:
    """Wait until ``is_ready`` returns True, and call ``on_wait`` once a minute. A signal ends the wait."""
    next_call = 0.0
    while not is_ready():
        if time.monotonic() >= next_call:
            next_call = time.monotonic() + REMINDER_SECONDS
            on_wait()
        signals.wait(POLL_SECONDS)


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    """Open a lock's file for the block. The end of the block releases the lock."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def try_file_lock(path: Path) -> Iterator[bool]:
    """Try to lock the file ``path`` for the block; yields whether that succeeded."""
    with _opened(path) as descriptor:
        yield try_lock(descriptor)


@contextmanager
def file_lock(path: Path, on_wait: Callable[[str], None], hint: str = "") -> Iterator[int]:
    """Lock the file ``path`` for the block; yields its descriptor, which a child can inherit to hold the lock too.

    Waits while another process holds the lock, and calls ``on_wait`` once a minute with the description and the hint of
    that process.
    """
    with _opened(path) as descriptor:

        def say() -> None:
            on_wait(os.pread(descriptor, 400, 0).decode(errors="replace").strip() or "another process")

        wait_for(lambda: try_lock(descriptor), say)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}{hint}".encode(), 0)
        yield descriptor
