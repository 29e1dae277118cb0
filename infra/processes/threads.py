"""Runs independent calls on threads so that an interrupt ends all of them."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextvars import copy_context
from typing import TypeVar

from infra.processes import signals

T = TypeVar("T")


def run_in_threads(calls: Sequence[Callable[[], T]], at_once: int, name: str) -> list[T]:
    """Run ``calls``, at most ``at_once`` at a time, each in a copy of this thread's context; return their results.

    A call that fails does not stop the others; the first failure is raised after they have ended. A signal, or an
    interrupted call, ends all of them.
    """

    def run(call: Callable[[], T]) -> T:
        signals.check()
        try:
            return call()
        except BaseException as error:
            if not isinstance(error, Exception):
                stop_threads()  # before a thread takes the next call
            raise

    with signals.thread_group() as stop_threads, ThreadPoolExecutor(max(at_once, 1), name) as pool:
        futures = [pool.submit(copy_context().run, run, call) for call in calls]
        try:
            while wait(futures, signals.POLL_SECONDS).not_done:
                for future in futures:
                    error = future.exception() if future.done() else None
                    if error is not None and not isinstance(error, Exception):  # an interrupt of this call
                        raise error
                signals.check()
        except BaseException:
            for future in futures:
                future.cancel()
            stop_threads()
            raise
    return [future.result() for future in futures]
