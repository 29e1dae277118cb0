"""Tests of prefetching: items keep their order, errors surface in place, and the thread ends."""

import threading
from collections.abc import Iterator

import pytest

from model.data.prefetch import DEPTH, read_ahead


def running() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("read ahead")]


def test_items_come_in_their_order_and_the_thread_ends() -> None:
    with read_ahead(lambda: range(100)) as items:
        assert list(items) == list(range(100))
    assert not running()


def test_at_most_depth_items_are_prefetched() -> None:
    made = []

    def endless() -> Iterator[int]:
        while True:
            made.append(len(made))
            yield made[-1]

    with read_ahead(endless) as items:
        assert [next(items) for _ in range(10)] == list(range(10))
    assert len(made) <= 10 + DEPTH + 2, "the queue, one in hand, one being made"
    assert not running()


def test_an_error_is_raised_in_its_place() -> None:
    def torn() -> Iterator[int]:
        yield 1
        raise OSError("torn")

    with read_ahead(torn) as items:
        assert next(items) == 1
        with pytest.raises(OSError, match="torn"):
            next(items)
    assert not running()


def test_an_error_of_the_consumer_ends_the_thread() -> None:
    with pytest.raises(ZeroDivisionError), read_ahead(lambda: iter(int, 1)) as items:
        next(items)
        raise ZeroDivisionError
    assert not running()
