"""Sentences of many requests, translated together by one thread: requests in, their sentences out as they are done.

Those that come within a few milliseconds of each other, and those that come while the model is busy, share a batch if
they are searched alike. In a batch the requests take turns, and a request's share doubles with each of its batches: its
first sentence comes soon, and a long text does not keep a short one waiting. How anything is translated is not known.
"""

import asyncio
import logging
import math
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, TypeVar

from infra.web.limits import Limits, RefusedRequest
from infra.web.protocol import SearchSettings, Sentence, ServedModel

LOG = logging.getLogger(__name__)
LONGEST_RETRY = 60
"""Seconds that a client is told to stay away at most."""

T = TypeVar("T")


class Worker:
    """One thread that does one call after the other. It ends with the process, whatever it is doing then."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self.busy = False
        threading.Thread(target=self._run, name="model", daemon=True).start()

    async def do(self, call: Callable[[], T]) -> T:
        """What ``call`` gives, or raises."""
        future: Future[T] = Future()
        self._calls.put((future, call))
        return await asyncio.wrap_future(future)

    def end(self) -> None:
        """Take no further call."""
        self._calls.put(None)

    def _run(self) -> None:
        while (asked := self._calls.get()) is not None:
            future, call = asked
            if not future.set_running_or_notify_cancel():
                continue
            self.busy = True
            try:
                future.set_result(call())
            except BaseException as error:
                future.set_exception(error)
            finally:
                self.busy = False


@dataclass(frozen=True)
class Failure:
    """Why a request gets no more sentences."""

    error: BaseException


class QueuedRequest:
    """One client's sentences, waiting, and those that are done. Whoever waits calls ``cancel`` at the end."""

    def __init__(
        self,
        served: ServedModel,
        search: SearchSettings,
        n_best: int,
        sentences: Sequence[str],
        share: int,
        until: float,
    ) -> None:
        self.served, self.search, self.n_best, self.until = served, search, n_best, until
        self.waiting = deque(enumerate(sentences))
        self.missing = len(sentences)
        self.share = share
        self.done: asyncio.Queue[tuple[int, Sentence] | Failure] = asyncio.Queue()
        self.cancelled = False

    def cancel(self) -> None:
        """Nobody waits any more: what is not begun is not done."""
        self.cancelled = True
        self.waiting.clear()

    async def answers(self) -> AsyncIterator[tuple[int, Sentence]]:
        """Each sentence with its number, as soon as it is translated."""
        while self.missing:
            found = await self.done.get()
            if isinstance(found, Failure):
                raise found.error
            self.missing -= 1
            yield found


class ExclusiveCall:
    """A call that shares its turn with nothing."""

    def __init__(self, call: Callable[[], Any], until: float) -> None:
        self.call, self.until = call, until
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    @property
    def cancelled(self) -> bool:
        return self.answer.done()


class Batcher:
    """The queue before the model. Use as an asynchronous context: inside, the model works."""

    def __init__(self, limits: Limits) -> None:
        self.limits, self.worker = limits, Worker()
        self.queue: deque[QueuedRequest | ExclusiveCall] = deque()
        self.seconds_each = 0.0
        """What a sentence took of late."""
        self._arrived = asyncio.Event()

    async def __aenter__(self) -> "Batcher":
        self._work = asyncio.create_task(self._serve())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._work.cancel()
        self.worker.end()

    @property
    def waiting(self) -> int:
        """Sentences, and calls, that have not been begun."""
        return sum(
            len(each.waiting) if isinstance(each, QueuedRequest) else 1 for each in self.queue if not each.cancelled
        )

    def submit(
        self, served: ServedModel, search: SearchSettings, n_best: int, sentences: Sequence[str], share: int = 1
    ) -> QueuedRequest:
        """Queue a request's sentences. Raises Refused where too many wait already."""
        self._admit(len(sentences))
        until = time.monotonic() + self.limits.request_seconds
        request = QueuedRequest(served, search, n_best, sentences, share, until)
        if sentences:
            self._enqueue(request)
        return request

    async def run_exclusively(self, call: Callable[[], T]) -> T:
        """What ``call`` gives on the model's thread, when its turn has come."""
        self._admit(1)
        waits = ExclusiveCall(call, time.monotonic() + self.limits.request_seconds)
        self._enqueue(waits)
        found: T = await waits.answer
        return found

    def _admit(self, sentences: int) -> None:
        waiting = self.waiting
        if waiting + sentences > self.limits.waiting:
            seconds = min(LONGEST_RETRY, max(1, math.ceil(waiting * self.seconds_each)))
            raise RefusedRequest(429, f"too much waits to be translated; try again in {seconds} s", retry_after=seconds)

    def _enqueue(self, each: QueuedRequest | ExclusiveCall) -> None:
        self.queue.append(each)
        self._arrived.set()

    async def _serve(self) -> None:
        while True:
            if not self.queue:
                self._arrived.clear()
                await self._arrived.wait()
                await asyncio.sleep(self.limits.gather_seconds)
            now = time.monotonic()
            self.queue = deque(each for each in self.queue if not each.cancelled and now < each.until)
            if not self.queue:
                continue
            first = self.queue[0]
            if isinstance(first, ExclusiveCall):
                self.queue.popleft()
                await self._run_exclusive(first)
            else:
                await self._translate(self._next_batch(first))

    async def _run_exclusive(self, waits: ExclusiveCall) -> None:
        try:
            found = await self.worker.do(waits.call)
        except Exception as error:
            if not waits.cancelled:
                waits.answer.set_exception(error)
        else:
            if not waits.cancelled:
                waits.answer.set_result(found)

    def _next_batch(self, first: QueuedRequest) -> list[tuple[QueuedRequest, list[tuple[int, str]]]]:
        """The next batch: of each request that is searched like the first in the line its share, as far as room is.
        Requests with more to do go to the end of the line."""
        alike = [
            each
            for each in self.queue
            if isinstance(each, QueuedRequest) and each.served is first.served and each.search == first.search
        ]
        taken: list[tuple[QueuedRequest, list[tuple[int, str]]]] = []
        room = self.limits.batch
        for request in alike:
            count = min(room, request.share, len(request.waiting))
            if not count:
                break
            room -= count
            taken.append((request, [request.waiting.popleft() for _ in range(count)]))
            request.share = min(2 * request.share, self.limits.batch)
            self.queue.remove(request)
            if request.waiting:
                self.queue.append(request)
        return taken

    async def _translate(self, batch: Sequence[tuple[QueuedRequest, list[tuple[int, str]]]]) -> None:
        first = batch[0][0]
        sentences = [sentence for _, part in batch for _, sentence in part]
        most = max(request.n_best for request, _ in batch)
        begun = time.monotonic()
        try:
            found = list(await self.worker.do(lambda: first.served.translate(sentences, first.search, most)))
            if len(found) != len(sentences):
                raise RuntimeError(f"{len(found)} translations came for {len(sentences)} sentences")
        except Exception as error:
            if len(batch) > 1:
                # One request's sentence must not fail the others.
                for alone in batch:
                    await self._translate([alone])
                return
            LOG.error("a sentence could not be translated", exc_info=error)
            first.done.put_nowait(Failure(error))
            first.cancel()
            return
        each = (time.monotonic() - begun) / len(sentences)
        self.seconds_each = each if not self.seconds_each else 0.8 * self.seconds_each + 0.2 * each
        answers = iter(found)
        for request, part in batch:
            for number, _ in part:
                sentence = next(answers)
                cut = Sentence(sentence.source, sentence.pieces, sentence.hypotheses[: request.n_best])
                request.done.put_nowait((number, cut))
