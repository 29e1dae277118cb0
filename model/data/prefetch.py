"""Prefetches on a thread, so that training does not wait for reading."""

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

Item = TypeVar("Item")
DEPTH = 4
"""Maximum of items prefetched."""


@contextmanager
def read_ahead(items: Callable[[], Iterable[Item]]) -> Iterator[Iterator[Item]]:
    """Iterate over ``items()`` on a thread that ends with the block; an exception is raised at its position."""
    made: queue.Queue[tuple[str, object]] = queue.Queue(DEPTH)
    ended = threading.Event()

    def put(kind: str, content: object) -> None:
        while not ended.is_set():
            with suppress(queue.Full):
                made.put((kind, content), timeout=0.1)
                return

    def make() -> None:
        try:
            for item in items():
                put("item", item)
                if ended.is_set():
                    return
            put("end", None)
        except BaseException as error:
            put("error", error)

    def take() -> Iterator[Item]:
        while True:
            kind, content = made.get()
            if kind == "end":
                return
            if isinstance(content, BaseException):
                raise content
            yield content  # type: ignore[misc]

    thread = threading.Thread(target=make, name="read ahead", daemon=True)
    thread.start()
    try:
        yield take()
    finally:
        ended.set()
        thread.join()
