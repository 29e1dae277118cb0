"""Prefetches on a thread, so that training does not wait for reading."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

Item = TypeVar("Item")
DEPTH = 4
"""Maximum number of prefetched items."""


@contextmanager
def read_ahead(items: Callable[[], Iterable[Item]]) -> Iterator[Iterator[Item]]:
    """Iterate over ``items()`` on a thread that ends with the block; an exception is raised at its item's position."""
    iterator = iter(items())
    end = object()
    thread = ThreadPoolExecutor(1, thread_name_prefix="read ahead")

    def take() -> Iterator[Item]:
        pending = deque(thread.submit(next, iterator, end) for _ in range(DEPTH))
        while (item := pending.popleft().result()) is not end:
            pending.append(thread.submit(next, iterator, end))
            yield item  # type: ignore[misc]

    try:
        yield take()
    finally:
        thread.shutdown(cancel_futures=True)
