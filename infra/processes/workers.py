"""Runs function calls on threads, processes or a Dask cluster, and yields results in the order of the calls.

All three are ``concurrent.futures`` executors. Functions take paths and small values; the number of workers does not
change the results.
"""

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from infra.errors import JobFailed, NetworkFault
from infra.extras import check_installed
from infra.processes import signals
from infra.processes.children import SAFE_PATH, die_with

DASK_SECONDS = 30.0
"""How long to wait for a Dask scheduler."""
THREADS = ("POLARS_MAX_THREADS", "RAYON_NUM_THREADS", "OMP_NUM_THREADS")
T = TypeVar("T")


@dataclass(frozen=True)
class Workers:
    """An executor and the number of calls that it runs at once."""

    executor: Executor
    count: int
    separate_processes: bool
    """Whether calls run in other processes. Large data is then passed as files on a shared disk."""

    def map(self, function: Callable[..., T], calls: Iterable[tuple[Any, ...]]) -> Iterator[T]:
        """Yield ``function(*call)`` for each call, in order. At most ``count + 1`` results wait for the reader, so
        memory stays constant.

        Raises the function's exceptions, and JobFailed if a worker process died.
        """
        ahead: deque[Future[T]] = deque()
        try:
            for call in calls:
                ahead.append(self.executor.submit(function, *call))
                if len(ahead) > self.count:
                    yield _result(ahead.popleft())
            while ahead:
                yield _result(ahead.popleft())
        except BrokenProcessPool as error:
            signals.check()  # such as SIGTERM to the whole group
            raise JobFailed("a worker process died; with little memory, try fewer workers (REPRO_WORKERS)") from error
        finally:
            for future in ahead:
                future.cancel()


@contextmanager
def executor(workers: int = 1, threads: int = 1, dask: str = "", at_once: int = 1) -> Iterator[Workers]:
    """Provide workers for the block: the Dask cluster at ``dask`` if given, else ``workers`` processes with ``threads``
    threads each. A single worker is ``at_once`` threads of this process. More than one thread suits thread-safe
    functions that spend their time in libraries that release Python's lock.

    Raises BadConfiguration if Dask is not installed, NetworkFault if the cluster does not answer.
    """
    if dask:
        with _dask(dask) as cluster:
            yield cluster
    elif workers == 1:
        with ThreadPoolExecutor(at_once, "worker") as pool:
            yield Workers(pool, at_once, separate_processes=False)
    else:
        # Spawned, because a forked process with threads may hang. Libraries read these variables at import.
        settings = {**dict.fromkeys(THREADS, f"{threads}"), **SAFE_PATH}
        before = {name: os.environ.get(name) for name in settings}
        os.environ |= settings
        processes = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _begin_worker, (os.getpid(),))
        try:
            yield Workers(processes, workers, separate_processes=True)
        finally:
            processes.shutdown(cancel_futures=True)
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})


def _begin_worker(parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches it too; the parent ends the work
    die_with(parent)


@contextmanager
def _dask(address: str) -> Iterator[Workers]:
    check_installed("distributed", "site.dask")
    from distributed import Client

    try:
        client = Client(address, timeout=DASK_SECONDS, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise NetworkFault(f"no Dask scheduler answers at {address}: {error}") from error
    with client:
        count = sum(client.nthreads().values())
        # With pure=True, Dask would return the result of an earlier call with the same arguments.
        with client.get_executor(pure=False) as pool:
            yield Workers(pool, max(count, 1), separate_processes=True)


def _result(future: Future[T]) -> T:
    try:
        return future.result()
    except Exception as error:  # Dask's errors have no common class; the function's own errors are raised below
        if type(error).__module__.startswith("distributed"):
            raise JobFailed(f"the Dask cluster gave up: {error}") from error
        raise
