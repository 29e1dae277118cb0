"""A fake model version and a real server for it on loopback."""

import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np

from flows.commands.serve import protected
from infra.servers.credentials import Credentials
from infra.web.app import Application, application
from infra.web.limits import Limits
from infra.web.protocol import AttentionKind, AttentionMap, Hypothesis, SearchSettings, Sentence, Source
from infra.web.server import Server, address, bind_socket, server
from infra.web.static_site import StaticSite


@dataclass
class Fake:
    """Translates to capitals, a word per token. ``translate`` blocks while ``gate`` is cleared; ``batches`` records
    its calls."""

    name: str = "fake/1"
    aliases: tuple[str, ...] = ("champion",)
    remark: str = "first of its name"
    languages: tuple[str, str] = ("en", "de")
    search: SearchSettings = field(default_factory=lambda: SearchSettings(4, 0.6))
    engine: str = "fake"
    longest: int = 30
    answer: Callable[[str], str] = str.upper
    gate: threading.Event = field(default_factory=threading.Event)
    batches: list[tuple[list[str], SearchSettings, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.gate.set()

    def sentences(self, line: str) -> Sequence[str]:
        return [each for each in re.split(r"(?<=\.) ", line.strip()) if each]

    def lengths(self, sentences: Sequence[str]) -> Sequence[int]:
        return [len(sentence.split()) for sentence in sentences]

    def prefix_length(self, prefix: str) -> int:
        return len(prefix.split())

    def unknown_in_prefix(self, prefix: str) -> str:
        return "Zebra" * ("Zebra" in prefix)

    def most_hypotheses(self, beam: int) -> int:
        return 2 * beam - 1

    def translate(self, sources: Sequence[Source], search: SearchSettings, n_best: int) -> Sequence[Sentence]:
        """Writes a prefix in front, and the settings of sampling and the sentence's number at the end."""
        sentences = [source.text for source in sources]
        self.batches.append((list(sentences), search, n_best))
        self.gate.wait()
        if any("poison" in sentence for sentence in sentences):
            raise FloatingPointError("no numbers")
        return [
            Sentence(
                each.text,
                tuple(each.text.split()),
                tuple(self._hypothesis(each, search, n) for n in range(n_best)),
                self.engine,
            )
            for each in sources
        ]

    def _hypothesis(self, source: Source, search: SearchSettings, rank: int) -> Hypothesis:
        drawn = search.sampling
        sampled = f" {drawn.temperature:g} {drawn.top_k} {drawn.seed} {source.number}" if drawn else ""
        greedy = " greedily" if search.beam == 1 and not drawn else ""
        text = " ".join(filter(None, (source.prefix, self.answer(source.text)))) + sampled + greedy
        words = tuple(text.split())
        return Hypothesis(text, -1.0 - rank, -2.0 - rank, tuple(range(4, 4 + len(words))), words, True)

    def maps(self, source: str, target: str | Sequence[int]) -> Mapping[AttentionKind, AttentionMap]:
        if not isinstance(target, str) and any(each < 4 for each in target):
            raise ValueError("ids has one below 4")
        read, written = source.split(), target.split() if isinstance(target, str) else [f"{each}" for each in target]
        rows, columns = (*written, "</s>"), (*read, "</s>")
        weights = np.full((2, 3, len(rows), len(columns)), 1 / len(columns), np.float32)
        square = np.full((2, 3, len(columns), len(columns)), 1 / len(columns), np.float32)
        return {"cross": AttentionMap(rows, columns, weights), "encoder": AttentionMap(columns, columns, square)}


@dataclass(frozen=True)
class Site:
    """A running server and its application."""

    url: str
    port: int
    application: Application
    server: Server


@contextmanager
def served(
    fakes: Sequence[Fake],
    limits: Limits = Limits(),  # noqa: B008
    credentials: Credentials | None = None,
    site: StaticSite | None = None,
) -> Iterator[Site]:
    """Serve as ``repro serve`` does, until the context ends."""
    bound = bind_socket("127.0.0.1", 0)
    ready = threading.Event()
    app = application(fakes, limits, site)
    running = server(protected(app, "127.0.0.1", (), credentials), limits, ready.set)
    thread = threading.Thread(target=lambda: running.run(sockets=[bound]))
    thread.start()
    try:
        assert ready.wait(60)
        yield Site(address("127.0.0.1", bound), bound.getsockname()[1], app, running)
    finally:
        for fake in fakes:
            fake.gate.set()
        running.should_exit = running.force_exit = True
        thread.join(60)


def until(holds: Callable[[], bool], seconds: float = 60) -> None:
    """Poll until a condition holds."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "the condition did not become true"
        time.sleep(0.01)


HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</textarea><svg/onload=alert(1)>",
    "{{7*7}} ${7*7} %0d%0aset-cookie:a=b",
    "\u2028\u202e\x00\x1b[31m</s><s>",
]
"""Texts that would be markup, templates or control characters elsewhere."""


def ask(site: Site, path: str = "/api/translate", **values: Any) -> httpx.Response:
    return httpx.post(f"{site.url}{path}", json=values, timeout=60)


def error_of(answer: httpx.Response) -> str:
    assert set(answer.json()) == {"error"}
    return f"{answer.json()['error']}"
