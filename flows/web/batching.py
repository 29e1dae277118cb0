"""Batches the sentences of many requests for one model thread and returns each sentence as soon as it is done.

Requests with equal search settings share a batch if they arrive while the model is busy, or within a few milliseconds
if several requests shared the last batch. A single client never waits for others. Requests take turns, and a request's
share of a batch doubles with each of its batches: its first sentence is done soon, and a long text does not delay a
short one.
"""

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import TypeVar

from flows.web.limits import Limits, RefusedRequest
from flows.web.served_version import SentenceJson, ServedVersion
from model.decoding.translation import Search

LOG = logging.getLogger(__name__)
RETRY_SECONDS = 5
"""Retry-After of a request that finds the queue full."""

T = TypeVar("T")


class TranslationFailed(Exception):
    """A sentence of a request could not be translated; the cause is in the log."""


class QueuedRequest:
    """The waiting and the finished sentences of one request. The caller must call ``cancel`` at the end."""

    def __init__(
        self, served: ServedVersion, search: Search, sentences: Sequence[str], share: int, deadline: float
    ) -> None:
        self.served = served
        self.search = search
        self.deadline = deadline
        self.waiting = deque(enumerate(sentences))
        self.missing = len(sentences)
        self.share = share
        self.done: asyncio.Queue[tuple[int, SentenceJson] | TranslationFailed] = asyncio.Queue()

    def shares_a_batch_with(self, other: "QueuedRequest") -> bool:
        """Whether one search can translate sentences of both requests."""
        return (
            self.served is other.served
            and replace(self.search, n_best=1) == replace(other.search, n_best=1)
            # It may decide the engine, and other requests must not change a request's engine.
            and (self.search.n_best > 1) == (other.search.n_best > 1)
        )

    def cancel(self) -> None:
        """Drop the sentences that have not started."""
        self.waiting.clear()

    async def answers(self) -> AsyncIterator[tuple[int, SentenceJson]]:
        """Yield each sentence with its number as soon as it is translated. Raises TranslationFailed."""
        while self.missing:
            answer = await self.done.get()
            if isinstance(answer, TranslationFailed):
                raise answer
            self.missing -= 1
            yield answer


Batch = list[tuple[QueuedRequest, list[tuple[int, str]]]]
"""Numbered sentences of several requests, to be translated together."""


class Batcher:
    """The queue of the model. Use it in ``async with``."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.queue: deque[QueuedRequest] = deque()
        self._thread = ThreadPoolExecutor(1, "model")
        self.busy = False
        """Whether the model's thread is computing."""
        self._calls = 0
        """Unfinished exclusive calls."""
        self._arrived = asyncio.Event()
        self._last_requests = 1
        """Requests in the last batch."""

    async def __aenter__(self) -> "Batcher":
        self._work = asyncio.create_task(self._serve())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._work.cancel()
        self._thread.shutdown(wait=False, cancel_futures=True)

    @property
    def waiting(self) -> int:
        """Sentences that have not started, and exclusive calls."""
        return self._calls + sum(len(request.waiting) for request in self.queue)

    def submit(self, served: ServedVersion, search: Search, sentences: Sequence[str], share: int = 1) -> QueuedRequest:
        """Queue sentences; the first batch takes ``share`` of them. Raises RefusedRequest (429) for a full queue."""
        self._admit(len(sentences))
        deadline = time.monotonic() + self.limits.request_seconds
        request = QueuedRequest(served, search, sentences, share, deadline)
        if sentences:
            self.queue.append(request)
            self._arrived.set()
        return request

    async def run_exclusively(self, call: Callable[[], T]) -> T:
        """Run ``call`` on the model's thread, between batches. Raises RefusedRequest (429) when the queue is full."""
        self._admit(1)
        self._calls += 1
        try:
            return await asyncio.wrap_future(self._on_thread(call))
        finally:
            self._calls -= 1

    def _on_thread(self, call: Callable[[], T]) -> "Future[T]":
        def noted() -> T:
            self.busy = True
            try:
                return call()
            finally:
                self.busy = False

        return self._thread.submit(noted)

    def _admit(self, sentences: int) -> None:
        waiting = self.waiting
        if waiting + sentences > self.limits.waiting:
            raise RefusedRequest(
                429,
                f"{waiting} sentences wait, allowed are {self.limits.waiting}; try again in {RETRY_SECONDS} s",
                retry_after=RETRY_SECONDS,
            )

    async def _serve(self) -> None:
        while True:
            if not self.queue:
                self._arrived.clear()
                await self._arrived.wait()
                await self._gather()
            now = time.monotonic()
            self.queue = deque(request for request in self.queue if request.waiting and now < request.deadline)
            if self.queue:
                batch = self._next_batch()
                self._last_requests = len(batch)
                await self._translate(batch)

    async def _gather(self) -> None:
        """Wait for as many requests as the last batch had: their clients probably send the next ones together."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.limits.gather_seconds):
                while len(self.queue) < self._last_requests:
                    self._arrived.clear()
                    await self._arrived.wait()

    def _next_batch(self) -> Batch:
        """Take a share of each request with the first request's search settings until the batch is full.

        Requests with sentences left move to the end of the queue.
        """
        first = self.queue[0]
        compatible = [request for request in self.queue if request.shares_a_batch_with(first)]
        batch: Batch = []
        free = self.limits.batch
        for request in compatible:
            count = min(free, request.share, len(request.waiting))
            if not count:
                break
            free -= count
            batch.append((request, [request.waiting.popleft() for _ in range(count)]))
            request.share = min(2 * request.share, self.limits.batch)
            self.queue.remove(request)
            if request.waiting:
                self.queue.append(request)
        return batch

    async def _translate(self, batch: Batch) -> None:
        first = batch[0][0]
        sentences = [sentence for _, part in batch for _, sentence in part]
        search = replace(first.search, n_best=max(request.search.n_best for request, _ in batch))
        outcome = asyncio.wrap_future(self._on_thread(lambda: first.served.translate(sentences, search)))
        await asyncio.wait([outcome])
        if error := outcome.exception():
            if len(batch) > 1:
                # A sentence of one request must not fail the others.
                for single in batch:
                    await self._translate([single])
                return
            LOG.error("a sentence could not be translated", exc_info=error)
            first.done.put_nowait(TranslationFailed(f"{error}"))
            first.cancel()
            return
        answers = iter(outcome.result())
        for request, part in batch:
            for number, _ in part:
                sentence = next(answers)
                sentence["hypotheses"] = sentence["hypotheses"][: request.search.n_best]
                request.done.put_nowait((number, sentence))
