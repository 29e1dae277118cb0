"""What is served: a model version as the page and the API see it, and the values that go to and fro.

Shape suffixes: L layers     H heads     R rows, the positions that look     C columns, those that are looked at
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

AttentionKind = Literal["cross", "encoder", "decoder"]
"""Which attention: of the translation over the source, of the source over itself, of the translation over itself."""


@dataclass(frozen=True)
class SearchSettings:
    """How sentences are searched; those of an equal search go together."""

    beam: int
    alpha: float


@dataclass(frozen=True)
class Hypothesis:
    """A sentence's translation; ``pieces`` are ``ids`` as a person reads them, both without eos. ``log_probability``
    is natural, ``score`` is it over the length penalty. Not ``finished``: cut at the greatest length."""

    text: str
    score: float
    log_probability: float
    ids: tuple[int, ...]
    pieces: tuple[str, ...]
    finished: bool


@dataclass(frozen=True)
class Sentence:
    """A sentence, its pieces and its translations, best first."""

    source: str
    pieces: tuple[str, ...]
    hypotheses: tuple[Hypothesis, ...]


@dataclass(frozen=True)
class AttentionMap:
    """Weights (L, H, R, C) of one attention, each row summing to 1, and what stands at its rows and columns."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    weights: NDArray[np.float32]


class ServedModel(Protocol):
    """A model version. ``translate``, ``maps`` and ``picture`` are called on one thread, one at a time; ``sentences``
    and ``lengths`` on any."""

    @property
    def name(self) -> str:
        """``demo/1``: how it is asked for."""
        ...

    @property
    def aliases(self) -> tuple[str, ...]:
        """``champion``: it may be asked for as ``demo@champion`` too."""
        ...

    @property
    def languages(self) -> tuple[str, str]:
        """Codes of source and target; empty where they are not known."""
        ...

    @property
    def search(self) -> SearchSettings:
        """How it is searched unless the request says otherwise."""
        ...

    @property
    def engine(self) -> str:
        """What computes its translations."""
        ...

    @property
    def longest(self) -> int:
        """Pieces of the longest sentence that it takes."""
        ...

    def sentences(self, line: str) -> Sequence[str]:
        """The sentences of a line, none of them empty."""
        ...

    def lengths(self, sentences: Sequence[str]) -> Sequence[int]:
        """Pieces of each sentence."""
        ...

    def translate(self, sentences: Sequence[str], search: SearchSettings, n_best: int) -> Sequence[Sentence]:
        """Translate sentences of at most ``longest`` pieces, in their order."""
        ...

    def maps(self, source: str, target: str | Sequence[int]) -> Mapping[AttentionKind, AttentionMap]:
        """The attention of a sentence and a translation, given as text or by ids. Raises ValueError for ids that no
        piece has."""
        ...

    def picture(self, kind: AttentionKind, shown: AttentionMap, layer: int, head: int, dark: bool) -> bytes:
        """A PNG of one map; ``layer`` and ``head`` count from 1, and 0 is the mean over all."""
        ...
