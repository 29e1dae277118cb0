"""A version that knows no model, served by a real server on loopback."""

import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from infra.web.app import Application, application
from infra.web.limits import Limits
from infra.web.protocol import AttentionKind, AttentionMap, Hypothesis, SearchSettings, Sentence
from infra.web.server import Server, address, bind_socket, server


@dataclass
class Fake:
    """Translates to capitals, a word a piece. While ``gate`` is closed it is busy; ``batches`` is what it was asked."""

    name: str = "fake/1"
    aliases: tuple[str, ...] = ("champion",)
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

    def translate(self, sentences: Sequence[str], search: SearchSettings, n_best: int) -> Sequence[Sentence]:
        self.batches.append((list(sentences), search, n_best))
        self.gate.wait()
        if any("poison" in sentence for sentence in sentences):
            raise FloatingPointError("no numbers")
        return [
            Sentence(each, tuple(each.split()), tuple(self._hypothesis(each, rank) for rank in range(n_best)))
            for each in sentences
        ]

    def _hypothesis(self, sentence: str, rank: int) -> Hypothesis:
        text = self.answer(sentence)
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

    def picture(self, kind: AttentionKind, shown: AttentionMap, layer: int, head: int, dark: bool) -> bytes:
        return b"\x89PNG" + f"{kind} {layer} {head} {dark}".encode()


@dataclass(frozen=True)
class Site:
    """Where it is served, and the application behind."""

    url: str
    port: int
    application: Application
    server: Server


@contextmanager
def served(fakes: Sequence[Fake], limits: Limits = Limits()) -> Iterator[Site]:  # noqa: B008
    """Serve while the context lasts."""
    taken = bind_socket("127.0.0.1", 0)
    ready = threading.Event()
    guarded = application(fakes, limits)
    made = server(guarded, limits, ready.set)
    thread = threading.Thread(target=lambda: made.run(sockets=[taken]))
    thread.start()
    try:
        assert ready.wait(60)
        yield Site(address("127.0.0.1", taken), taken.getsockname()[1], guarded, made)
    finally:
        for fake in fakes:
            fake.gate.set()
        made.should_exit = made.force_exit = True
        thread.join(60)


def until(holds: Callable[[], bool], seconds: float = 60) -> None:
    """Wait until something holds."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it never came to hold"
        time.sleep(0.01)
