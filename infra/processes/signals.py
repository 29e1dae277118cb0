"""Handles Ctrl-C and SIGTERM without losing them and without interrupting libraries.

A signal handler raises its exception at the current line of the main thread. Inside a library the exception may be
caught, or a lock may stay held forever. Code that calls such libraries therefore runs on its own thread (``shielded``),
where no handler runs: the handler stores the signal, and the code calls ``check`` where it starts, waits or reports.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar

from infra.processes.children import GRACE_SECONDS

T = TypeVar("T")
PATIENCE_SECONDS = GRACE_SECONDS + 15
"""How long shielded work may take to end: the time of a job's last checkpoint and 15 s more."""
POLL_SECONDS = 0.1

_received: list[int] = []
_interrupted: set[object] = set()
"""The groups of threads (``thread_group``) that an interrupt ends."""
_patience: float | None = None
"""The patience of the shielded work in seconds; None if there is no such work."""


def install_handlers() -> None:
    """Make SIGINT raise KeyboardInterrupt and SIGTERM SystemExit(143): at once, or in ``check`` of shielded work."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _handle)


@contextmanager
def handled() -> Iterator[None]:
    """Install the handlers during a block, for a program that has its own handlers.

    Only the main thread receives signals: on other threads nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    install_handlers()
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _received.clear()


def check() -> None:
    """Raise the exception of the first signal since ``install_handlers``, if there was one, or end this thread."""
    if _received:
        raise _exception_for(_received[0])
    if _interrupted:
        raise _exception_for(signal.SIGTERM)


def wait(seconds: float) -> None:
    """Sleep; raises as ``check`` does when a signal arrives."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        check()
        time.sleep(min(left, POLL_SECONDS))


@contextmanager
def thread_group() -> Iterator[Callable[[], None]]:
    """Yield a function for an interrupt that reached only one thread: ``check`` raises on all until the block ends."""
    group = object()
    try:
        yield lambda: _interrupted.add(group)
    finally:
        _interrupted.discard(group)


def shielded(work: Callable[[], T], patience: float = PATIENCE_SECONDS) -> T:
    """Run ``work`` on its own thread, where no signal interrupts it, and return its result.

    After a signal, the end of the work raises the signal's exception. If the work has not ended ``patience`` seconds
    after the signal, or when a SIGINT follows, this process exits at once. As after SIGKILL, its children end with it
    and finished results are kept.
    """
    global _patience
    with ThreadPoolExecutor(1, "work") as thread:
        _patience = patience
        try:
            future = thread.submit(work)
            # Wait in short steps: with polars, the kernel continues a wait after SIGINT, and Python calls no handler
            # until the wait ends.
            while wait_for([future], POLL_SECONDS).not_done:
                pass
            return future.result()
        finally:
            _patience = None
            if _received:
                signal.setitimer(signal.ITIMER_REAL, 0)
            check()


def exit_if_received() -> None:
    """Exit at once if a signal was received, where the normal exit would wait for something that is gone."""
    if _received:
        _exit_now()


def _exit_now() -> None:
    print("\nrepro: stopped at once; finished stages are kept, and the same command resumes the run", file=sys.stderr)
    sys.stderr.flush()
    os._exit(128 + _received[0])


def _handle(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    if _received and number == signal.SIGTERM:  # for example from a repeated `repro stop`: the work is ending
        return
    _received.append(number)
    if _patience is None:
        raise _exception_for(number)
    if len(_received) > 1:
        _exit_now()
    signal.signal(signal.SIGALRM, lambda *_: _exit_now())
    signal.setitimer(signal.ITIMER_REAL, _patience)


def _exception_for(number: int) -> BaseException:
    return KeyboardInterrupt() if number == signal.SIGINT else SystemExit(128 + number)
