"""Ctrl-C and SIGTERM that neither get lost nor break anything.

An exception out of a signal handler surfaces wherever the main thread happens to be. In the middle of a library it may
be taken for that library's own, or leave a lock held for ever. So what calls such libraries runs on a thread of its own
(``run_shielded``), where no handler ever runs: the signal is noted, and the work asks for it (``check``) wherever it
begins, waits or tells how far it is.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from types import FrameType
from typing import TypeVar

from infra.processes.children import GRACE_SECONDS

PATIENCE_SECONDS = GRACE_SECONDS + 15
"""How long shielded work may take to end: a job that writes its last checkpoint, and a little for itself."""
POLL_SECONDS = 0.1

T = TypeVar("T")
_received: list[int] = []
_shield = False


def install_handlers() -> None:
    """From now on SIGINT raises KeyboardInterrupt and SIGTERM SystemExit(143) here, or in ``check`` under a shield."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _handle)


def check() -> None:
    """Raise what the first signal since ``install_handlers`` stands for, if one has come."""
    if _received:
        raise _exception_for(_received[0])


def wait(seconds: float) -> None:
    """Wait, unless a signal comes first."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        check()
        time.sleep(min(left, POLL_SECONDS))


def stop_all_threads() -> None:
    """Make ``check`` raise on every other thread too, where the end came as an exception to this one alone."""
    if not _received:
        _received.append(signal.SIGTERM)


def run_shielded(work: Callable[[], T], patience: float = PATIENCE_SECONDS) -> T:
    """Do ``work`` on another thread; raises what it raises, or, after a signal, what that stands for.

    Work that has not ended ``patience`` seconds after the signal, or when a second one comes, is given up together with
    this process: as after a SIGKILL, its children end with it and what was finished is kept.
    """
    global _shield
    found: Future[T] = Future()

    def run() -> None:
        try:
            found.set_result(work())
        except BaseException as error:
            found.set_exception(error)

    _shield, left = True, patience
    worker = threading.Thread(target=run, name="work", daemon=True)
    worker.start()
    try:
        while not found.done():
            worker.join(POLL_SECONDS)
            left -= POLL_SECONDS if _received else 0.0
            if left < 0 or len(_received) > 1:
                _exit_now()
    finally:
        _shield = False
    check()
    return found.result()


def _exit_now() -> None:
    print("\nrepro: ended at once; what was finished is kept, and the same command goes on from there", file=sys.stderr)
    sys.stderr.flush()
    os._exit(128 + _received[0])


def _handle(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    _received.append(number)
    if not _shield:
        raise _exception_for(number)


def _exception_for(number: int) -> BaseException:
    return KeyboardInterrupt() if number == signal.SIGINT else SystemExit(128 + number)
