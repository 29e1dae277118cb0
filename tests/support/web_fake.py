"""A fake model version and a real server for it on loopback."""

import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from flows.web.app import application, protected
from flows.web.batching import Batcher
from flows.web.limits import Limits
from flows.web.served_version import SentenceJson
from flows.web.server import Server, address, bind_socket
from infra.servers.credentials import Credentials
from model.config import Decoding
from model.decoding.translation import Search


@dataclass
class Fake:
    """Translates to capitals, a word per token. ``translate`` blocks while ``gate`` is cleared; ``batches`` records
    its calls."""

    name: str = "fake/1"
    aliases: tuple[str, ...] = ("champion",)
    remark: str = "first of its name"
    languages: tuple[str, str] = ("en", "de")
    decoding: Decoding = field(default_factory=Decoding)
    engine: str = "fake"
    longest: int = 30
    answer: Callable[[str], str] = str.upper
    gate: threading.Event = field(default_factory=threading.Event)
    batches: list[tuple[list[str], Search, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.gate.set()

    @property
    def model(self) -> "Fake":
        """The loaded model, which counts and splits."""
        return self

    def sentences(self, line: str) -> Sequence[str]:
        return [each for each in re.split(r"(?<=\.) ", line.strip()) if each]

    def lengths(self, sentences: Sequence[str]) -> Sequence[int]:
        return [len(sentence.split()) for sentence in sentences]

    def target_length(self, text: str) -> int:
        return len(text.split())

    def translate(self, sentences: Sequence[str], search: Search) -> Sequence[SentenceJson]:
        self.batches.append(([*sentences], search, search.n_best))
        self.gate.wait()
        if any("poison" in sentence for sentence in sentences):
            raise FloatingPointError("no numbers")
        return [
            {
                "source": each,
                "pieces": each.split(),
                "hypotheses": [self._hypothesis(each, search, n) for n in range(search.n_best)],
                "engine": self.engine,
            }
            for each in sentences
        ]

    def _hypothesis(self, sentence: str, search: Search, rank: int) -> dict[str, Any]:
        text = self.answer(sentence) + " greedily" * (search.decoding.beam == 1)
        words = text.split()
        ids = list(range(4, 4 + len(words)))
        scores = {"score": -1.0 - rank, "log_probability": -2.0 - rank, "finished": True}
        return {"text": text, "ids": ids, "pieces": words, **scores}

    def attention(self, source: str, target: str | Sequence[int], kind: str) -> Mapping[str, Any]:
        if not isinstance(target, str) and any(each < 4 for each in target):
            raise ValueError("ids has one below 4")
        columns = [*source.split(), "</s>"]
        written = target.split() if isinstance(target, str) else [f"{each}" for each in target]
        rows = columns if kind == "encoder" else [*written, "</s>"]
        row = [round(1 / len(columns), 4)] * len(columns)
        return {"rows": rows, "columns": columns, "weights": [[[row] * len(rows)] * 3] * 2}


@dataclass(frozen=True)
class Site:
    """A running server and its queue."""

    url: str
    port: int
    batcher: Batcher
    server: Server


@contextmanager
def served(
    fakes: Sequence[Fake],
    limits: Limits = Limits(),  # noqa: B008
    credentials: Credentials | None = None,
) -> Iterator[Site]:
    """Serve as ``repro serve`` does, until the context ends."""
    bound = bind_socket("127.0.0.1", 0)
    ready = threading.Event()
    batcher = Batcher(limits)
    running = Server(protected(application(fakes, batcher), "127.0.0.1", (), credentials), limits, ready.set)
    thread = threading.Thread(target=lambda: running.run(sockets=[bound]))
    thread.start()
    try:
        assert ready.wait(60)
        yield Site(address("127.0.0.1", bound), bound.getsockname()[1], batcher, running)
    finally:
        for fake in fakes:
            fake.gate.set()
        running.should_exit = running.force_exit = True
        thread.join(60)


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
