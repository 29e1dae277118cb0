"""Which engine a beam search runs on: CTranslate2 where it finds what the own engine does, else the own engine.

CTranslate2 is several times faster for few sentences. ``model.export.open_engine`` opens it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ..config import Decoding
from .translation import Hypothesis
from .translator import Prefixes, Translator

OWN = "own search"
CTRANSLATE2 = "CTranslate2"
"""The names of the engines in results."""


class OtherEngine(Protocol):
    """Another beam search of the same model."""

    def search_n_best(
        self, sources: Sequence[Sequence[int]], decoding: Decoding, n_best: int
    ) -> list[list[Hypothesis]]:
        """Search as ``Translator.search_n_best``, without prefixes."""
        ...

    def longest_output(self, source: int, decoding: Decoding) -> int:
        """Tokens of the longest output for a source of ``source`` tokens, eos counted in both."""
        ...


@dataclass(frozen=True)
class SearchEngine:
    """A model's beam search. ``other`` is None if the own engine searches everything, because of ``reason``."""

    translator: Translator
    other: OtherEngine | None = None
    reason: str = ""
    note: str = ""
    """What is known of ``other``, such as how many sentences were compared."""

    @property
    def name(self) -> str:
        """The engine of an ordinary search."""
        return CTRANSLATE2 if self.other else OWN

    def why_own(self, decoding: Decoding, n_best: int = 1) -> str:
        """Return why the own engine searches with these settings; an empty string if CTranslate2 does."""
        if not self.other:
            return self.reason
        return why_unsupported(decoding, n_best)

    def name_for(self, decoding: Decoding, n_best: int = 1, *, constrained: bool = False) -> str:
        """The engine of a search with these settings; ``constrained``: sampling, or an output with a given part."""
        return OWN if constrained or self.why_own(decoding, n_best) else CTRANSLATE2

    def search_n_best(
        self, sources: Sequence[Sequence[int]], decoding: Decoding, n_best: int, prefixes: Prefixes | None = None
    ) -> list[list[Hypothesis]]:
        """Search as ``Translator.search_n_best``; sources with a prefix are searched by the own engine."""
        begun = prefixes or {}
        own = self.translator
        if self.other is None or why_unsupported(decoding, n_best):
            return own.search_n_best(sources, decoding, n_best, begun)
        numbers = [number for number, source in enumerate(sources) if self._is_own(source, decoding, number in begun)]
        chosen = set(numbers)
        others = [number for number in range(len(sources)) if number not in chosen]
        found: list[list[Hypothesis]] = [[] for _ in sources]
        for number, best in zip(
            others, self.other.search_n_best([sources[n] for n in others], decoding, n_best), strict=True
        ):
            found[number] = best
        if numbers:
            moved = {place: begun[n] for place, n in enumerate(numbers) if n in begun}
            searched = own.search_n_best([sources[n] for n in numbers], decoding, n_best, moved)
            for number, best in zip(numbers, searched, strict=True):
                found[number] = best
        return found

    def _is_own(self, source: Sequence[int], decoding: Decoding, begins: bool) -> bool:
        assert self.other
        length = len(source) + 1
        return begins or self.other.longest_output(length, decoding) < decoding.lengths(length)[1]


def why_unsupported(decoding: Decoding, n_best: int = 1) -> str:
    """Return which setting CTranslate2 cannot search with as the own engine does; an empty string if all are fine."""
    if decoding.beta:
        return f"decoding.beta is {decoding.beta:g}, and CTranslate2's coverage penalty is of one layer"
    if n_best > 1:
        return f"n_best is {n_best}, and CTranslate2 keeps no more than a beam of finished hypotheses"
    return ""
