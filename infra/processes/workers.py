"""Work for several processes or machines: the same calls, in the same order, wherever they are computed.

In come functions of paths and their arguments; out come their results in the order of the calls, whatever the number of
workers. A ``concurrent.futures`` executor does them: a thread beside this one, a pool of processes, or a Dask cluster.
What the functions do is not known here.
"""

import multiprocessing
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from infra.errors import BadConfiguration, Fault, JobFailed, NetworkFault
from infra.processes.children import SAFE_PATH

DASK_SECONDS = 30.0
"""How long a Dask scheduler is waited for."""
THREADS = ("POLARS_MAX_THREADS", "RAYON_NUM_THREADS", "OMP_NUM_THREADS")
T = TypeVar("T")


@dataclass(frozen=True)
class Workers:
    """An executor, and how many calls it does at once."""

    executor: Executor
    count: int
    separate_processes: bool
    """In processes of their own: what is large goes there and back as files, on a disk that all of them see."""

    def map(self, function: Callable[..., T], calls: Iterable[tuple[Any, ...]]) -> Iterator[T]:
        """``function(*call)`` for each call, in order. At most ``count + 1`` calls are ahead of the reader of the
        results, so that memory stays flat.

        Raises what the function raises; JobFailed where a process died under it.
        """
        ahead: deque[Future[T]] = deque()
        try:
            for call in calls:
                ahead.append(self.executor.submit(function, *call))
                if len(ahead) > self.count:
                    yield _result(ahead.popleft())
            while ahead:
                yield _result(ahead.popleft())
        finally:
            for future in ahead:
                future.cancel()


@contextmanager
def executor(workers: int = 1, threads: int = 1, dask: str = "") -> Iterator[Workers]:
    """Workers until the end of the block: those of the Dask cluster at ``dask`` if it is given, else so many processes
    of so many ``threads`` each; one is a thread of this process.

    Raises BadConfiguration where Dask is not installed, NetworkFault where the cluster does not answer.
    """
    if dask:
        with _dask(dask) as cluster:
            yield cluster
    elif workers == 1:
        with ThreadPoolExecutor(1, "worker") as thread:
            yield Workers(thread, 1, separate_processes=False)
    else:
        # Spawned, not forked: a fork of a process with threads may hang. Libraries read these when they are loaded.
        settings = {**dict.fromkeys(THREADS, f"{threads}"), **SAFE_PATH}
        before = {name: os.environ.get(name) for name in settings}
        os.environ |= settings
        pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"))
        try:
            yield Workers(pool, workers, separate_processes=True)
        finally:
            pool.shutdown(cancel_futures=True)
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})


@contextmanager
def _dask(address: str) -> Iterator[Workers]:
    try:
        from distributed import Client
    except ImportError as error:
        raise BadConfiguration("site.dask needs the extra dask: pip install -e '.[dask]'") from error
    try:
        client = Client(address, timeout=DASK_SECONDS, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise NetworkFault(f"no Dask scheduler answers at {address}: {error}") from error
    with client:
        count = sum(client.nthreads().values())
        # A call that is repeated, because its worker is gone, may not be taken for one that was made before.
        with client.get_executor(pure=False) as pool:
            yield Workers(pool, max(count, 1), separate_processes=True)


def _result(future: Future[T]) -> T:
    try:
        return future.result()
    except Fault:
        raise
    except BrokenProcessPool as error:
        raise JobFailed("a worker process died; with little memory, try fewer workers (REPRO_WORKERS)") from error
    except Exception as error:
        if type(error).__module__.startswith("distributed"):
            raise JobFailed(f"the Dask cluster gave up: {error}") from error
        raise
