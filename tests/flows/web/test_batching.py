"""Tests of the batcher: each request gets its own sentences, each once, and no batch is too large."""

import asyncio
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st
from web_fake import Fake

from flows.web.batching import Batcher
from flows.web.limits import Limits
from flows.web.served_version import SentenceJson
from model.config import Decoding
from model.decoding.translation import Search

REQUESTS = st.lists(
    st.tuples(st.integers(0, 12), st.sampled_from([2, 3]), st.integers(1, 3), st.sampled_from([1, 4]), st.booleans()),
    max_size=8,
)


async def answered(batcher: Batcher, fake: Fake, requests: Sequence[tuple[int, int, int, int, bool]]) -> None:
    async def one(number: int, count: int, beam: int, n_best: int, share: int, cancels: bool) -> None:
        sentences = [f"r{number} s{position}" for position in range(count)]
        request = batcher.submit(fake, Search(Decoding(beam), n_best), sentences, share)
        found: dict[int, SentenceJson] = {}
        async for position, sentence in request.answers():
            assert position not in found
            found[position] = sentence
            if cancels:
                request.cancel()
                return
        assert [found[position]["source"] for position in range(count)] == sentences
        assert {len(each["hypotheses"]) for each in found.values()} <= {n_best}

    await asyncio.gather(*(one(number, *request) for number, request in enumerate(requests)))


@settings(max_examples=60)
@given(requests=REQUESTS, limit=st.integers(1, 6))
def test_every_request_gets_its_own_sentences_once(requests: list[tuple[int, int, int, int, bool]], limit: int) -> None:
    fake = Fake()

    async def work() -> None:
        async with Batcher(Limits(batch=limit, gather_seconds=0)) as batcher:
            await asyncio.wait_for(answered(batcher, fake, requests), 60)
            assert batcher.waiting == 0

    asyncio.run(work())
    assert all(1 <= len(sentences) <= limit for sentences, _, _ in fake.batches)
    for sentences, search, _ in fake.batches:
        asked = [requests[int(each.split()[0][1:])] for each in sentences]
        assert {beam for _, beam, *_ in asked} == {search.decoding.beam}
        assert len({n_best > 1 for _, _, n_best, *_ in asked}) == 1, "one for one hypothesis shares none with several"


def test_a_short_text_does_not_wait_for_a_long_one() -> None:
    fake = Fake()

    async def work() -> None:
        async with Batcher(Limits(batch=4)) as batcher:
            long = batcher.submit(fake, Search(fake.decoding), [f"long {n}" for n in range(40)])
            short = batcher.submit(fake, Search(fake.decoding), ["short"])
            for request in (short, long):
                async for _ in request.answers():
                    pass

    asyncio.run(work())
    assert fake.batches[0][0] == ["long 0", "short"]
    assert len(fake.batches) >= 11


def test_a_client_alone_does_not_wait_and_several_are_gathered() -> None:
    fake = Fake()

    async def ask(batcher: Batcher, name: str) -> None:
        async for _ in batcher.submit(fake, Search(fake.decoding), [name]).answers():
            pass

    async def work() -> None:
        # With an hour to gather, whoever waits for others never ends.
        async with Batcher(Limits(gather_seconds=3600.0)) as batcher:
            for number in range(3):
                await asyncio.wait_for(ask(batcher, f"alone {number}"), 60)
            await asyncio.gather(*(ask(batcher, f"first {number}") for number in range(3)))
            late = asyncio.create_task(ask(batcher, "second 0"))
            await asyncio.sleep(0.05)
            assert not late.done()
            await asyncio.gather(late, ask(batcher, "second 1"), ask(batcher, "second 2"))

    asyncio.run(work())
    assert [sentences for sentences, _, _ in fake.batches] == [
        ["alone 0"],
        ["alone 1"],
        ["alone 2"],
        ["first 0", "first 1", "first 2"],
        ["second 0", "second 1", "second 2"],
    ]
