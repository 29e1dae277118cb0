"""Batches the sentences of many requests for one model thread and returns each sentence as soon as it is done.

Requests with equal search settings share a batch if they arrive while the model is busy, or within a few milliseconds
where several shared the last one; a client alone never waits for others.
Requests take turns, and a request's share of a batch doubles with each of its batches: its first sentence is done
soon, and a long text does not delay a short one.
"""

import asyncio
import contextlib
import logging
import math
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

from infra.web.limits import Limits, RefusedRequest
from infra.web.served_model import SearchSettings, SentenceJson, ServedModel, Source

LOG = logging.getLogger(__name__)
MAX_RETRY_SECONDS = 60
"""Greatest value of Retry-After."""

T = TypeVar("T")


class Worker:
    """A daemon thread that runs one call after the other."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self.busy = False
        threading.Thread(target=self._run, name="model", daemon=True).start()

    async def do(self, call: Callable[[], T]) -> "asyncio.Future[T]":
        """Run ``call`` on the thread; return what became of it, its result or its exception."""
        future: Future[T] = Future()
        self._calls.put((future, call))
        outcome = asyncio.wrap_future(future)
        await asyncio.wait([outcome])
        return outcome

    def end(self) -> None:
        """Stop the thread after the calls that are queued."""
        self._calls.put(None)

    def _run(self) -> None:
        while (item := self._calls.get()) is not None:
            future, call = item
            if not future.set_running_or_notify_cancel():
                continue
            self.busy = True
            try:
                future.set_result(call())
            except BaseException as error:
                future.set_exception(error)
            finally:
                self.busy = False


class TranslationFailed(Exception):
    """A sentence of a request could not be translated; the cause is in the log."""


class QueuedRequest:
    """The waiting and the finished sentences of one request. The caller must call ``cancel`` at the end."""

    def __init__(
        self,
        served: ServedModel,
        search: SearchSettings,
        n_best: int,
        sentences: Sequence[Source],
        share: int,
        deadline: float,
    ) -> None:
        self.served = served
        self.search = search
        self.n_best = n_best
        self.deadline = deadline
        self.waiting = deque(enumerate(sentences))
        self.missing = len(sentences)
        self.share = share
        self.done: asyncio.Queue[tuple[int, SentenceJson] | TranslationFailed] = asyncio.Queue()
        self.cancelled = False

    def cancel(self) -> None:
        """Drop the sentences that have not started."""
        self.cancelled = True
        self.waiting.clear()

    async def answers(self) -> AsyncIterator[tuple[int, SentenceJson]]:
        """Yield each sentence with its number as soon as it is translated. Raises TranslationFailed."""
        while self.missing:
            answer = await self.done.get()
            if isinstance(answer, TranslationFailed):
                raise answer
            self.missing -= 1
            yield answer


class ExclusiveCall:
    """A queued call that shares its turn with no request."""

    def __init__(self, call: Callable[[], Any], deadline: float) -> None:
        self.call = call
        self.deadline = deadline
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    @property
    def cancelled(self) -> bool:
        return self.answer.done()


class Batcher:
    """The queue in front of the model. It works inside ``async with``."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.worker = Worker()
        self.queue: deque[QueuedRequest | ExclusiveCall] = deque()
        self.seconds_each = 0.0
        """Moving average of the seconds per sentence."""
        self.on_batch: Callable[[ServedModel, int, float], None] = lambda *_: None
        """Is told of each batch: the version, the number of sentences, the seconds that they took."""
        self._arrived = asyncio.Event()
        self._last_requests = 1
        """Requests in the last batch."""

    async def __aenter__(self) -> "Batcher":
        self._work = asyncio.create_task(self._serve())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._work.cancel()
        self.worker.end()

    @property
    def waiting(self) -> int:
        """Sentences and exclusive calls that have not started."""
        return sum(
            len(each.waiting) if isinstance(each, QueuedRequest) else 1 for each in self.queue if not each.cancelled
        )

    def submit(
        self, served: ServedModel, search: SearchSettings, n_best: int, sentences: Sequence[Source], share: int = 1
    ) -> QueuedRequest:
        """Queue the sentences of a request. Raises RefusedRequest (429) when the queue is full."""
        self._admit(len(sentences))
        request = QueuedRequest(served, search, n_best, sentences, share, self._deadline())
        if sentences:
            self._enqueue(request)
        return request

    async def run_exclusively(self, call: Callable[[], T]) -> T:
        """Run ``call`` on the model's thread in its turn. Raises RefusedRequest (429) when the queue is full."""
        self._admit(1)
        queued = ExclusiveCall(call, self._deadline())
        self._enqueue(queued)
        result: T = await queued.answer
        return result

    def _deadline(self) -> float:
        return time.monotonic() + self.limits.request_seconds

    def _admit(self, sentences: int) -> None:
        waiting = self.waiting
        if waiting + sentences > self.limits.waiting:
            seconds = min(MAX_RETRY_SECONDS, max(1, math.ceil(waiting * self.seconds_each)))
            raise RefusedRequest(
                429,
                f"{waiting} sentences wait, allowed are {self.limits.waiting}; try again in {seconds} s",
                retry_after=seconds,
            )

    def _enqueue(self, each: QueuedRequest | ExclusiveCall) -> None:
        self.queue.append(each)
        self._arrived.set()

    async def _serve(self) -> None:
        while True:
            if not self.queue:
                self._arrived.clear()
                await self._arrived.wait()
                await self._gather()
            now = time.monotonic()
            self.queue = deque(each for each in self.queue if not each.cancelled and now < each.deadline)
            if not self.queue:
                continue
            first = self.queue[0]
            if isinstance(first, ExclusiveCall):
                self.queue.popleft()
                await self._run_exclusive(first)
            else:
                batch = self._next_batch(first)
                self._last_requests = len(batch)
                await self._translate(batch)

    async def _gather(self) -> None:
        """Wait for as many requests as the last batch had: clients that are answered together ask again together."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.limits.gather_seconds):
                while len(self.queue) < self._last_requests:
                    self._arrived.clear()
                    await self._arrived.wait()

    async def _run_exclusive(self, queued: ExclusiveCall) -> None:
        outcome = await self.worker.do(queued.call)
        error = outcome.exception()
        if queued.cancelled:
            return
        if error:
            queued.answer.set_exception(error)
        else:
            queued.answer.set_result(outcome.result())

    def _next_batch(self, first: QueuedRequest) -> list[tuple[QueuedRequest, list[tuple[int, Source]]]]:
        """Take a share of each request that is searched as ``first`` is until the batch is full.

        Requests with sentences left move to the end of the queue.
        """
        compatible = [
            each
            for each in self.queue
            if isinstance(each, QueuedRequest)
            and each.served is first.served
            and each.search == first.search
            # The engine may depend on it: nobody's engine depends on who else asks.
            and (each.n_best > 1) == (first.n_best > 1)
        ]
        taken: list[tuple[QueuedRequest, list[tuple[int, Source]]]] = []
        free = self.limits.batch
        for request in compatible:
            count = min(free, request.share, len(request.waiting))
            if not count:
                break
            free -= count
            taken.append((request, [request.waiting.popleft() for _ in range(count)]))
            request.share = min(2 * request.share, self.limits.batch)
            self.queue.remove(request)
            if request.waiting:
                self.queue.append(request)
        return taken

    async def _translate(self, batch: Sequence[tuple[QueuedRequest, list[tuple[int, Source]]]]) -> None:
        first = batch[0][0]
        sentences = [sentence for _, part in batch for _, sentence in part]
        n_best = max(request.n_best for request, _ in batch)
        started = time.monotonic()

        def translate() -> Sequence[SentenceJson]:
            answers = first.served.translate(sentences, first.search, n_best)
            if len(answers) != len(sentences):
                raise RuntimeError(f"{first.served.name} has {len(answers)} translations of {len(sentences)} sentences")
            return answers

        outcome = await self.worker.do(translate)
        if error := outcome.exception():
            if len(batch) > 1:
                # One request's sentence must not fail the others.
                for single in batch:
                    await self._translate([single])
                return
            LOG.error("a sentence could not be translated", exc_info=error)
            first.done.put_nowait(TranslationFailed(f"{error}"))
            first.cancel()
            return
        seconds = time.monotonic() - started
        self.on_batch(first.served, len(sentences), seconds)
        each = seconds / len(sentences)
        self.seconds_each = each if not self.seconds_each else 0.8 * self.seconds_each + 0.2 * each
        answers = iter(outcome.result())
        for request, part in batch:
            for number, _ in part:
                sentence = next(answers)
                sentence["hypotheses"] = sentence["hypotheses"][: request.n_best]
                request.done.put_nowait((number, sentence))
