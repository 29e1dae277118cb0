"""Chooses the engine of a beam search: CTranslate2 if it finds the same translations, otherwise the own engine.

``SearchEngine.why_own`` decides. CTranslate2 is several times faster for few sentences.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, get_args

from ..config.decoding import EngineChoice
from ..config.keying import require
from .translation import Hypothesis, Search
from .translator import Translator

OWN = "own search"
CTRANSLATE2 = "CTranslate2"
"""The names of the engines in results."""


class OtherEngine(Protocol):
    """Another beam search of the same model."""

    def search_n_best(self, sources: Sequence[Sequence[int]], search: Search) -> list[list[Hypothesis]]:
        """Search like ``Translator.search_n_best``."""

    def can_search(self, source: Sequence[int], search: Search) -> bool:
        """Whether the engine supports the longest output that the search allows for a source."""


@dataclass(frozen=True)
class Opened:
    """The other engine of a model, or None."""

    other: OtherEngine | None
    note: str
    """The comparison of ``other`` with the own search, or the reason why there is no other engine."""


class SearchEngine:
    """A model's beam search. It opens the other engine before the first search that can use it."""

    def __init__(
        self, translator: Translator, choice: EngineChoice = "own", open_other: Callable[[], Opened] | None = None
    ) -> None:
        """``auto`` uses the other engine only on CPUs. Raises ValueError for an unknown choice."""
        require(choice in get_args(EngineChoice), "engine", choice, "auto, own or ctranslate2")
        self.translator = translator
        self.choice = choice
        self._open_other = open_other

    @cached_property
    def opened(self) -> Opened:
        """The other engine. Raises the errors of ``open_other``."""
        return self._open_other() if self._open_other else Opened(None, "there is no other engine")

    def why_own(self, search: Search) -> str:
        """Return the reason why the own engine does this search; "" if CTranslate2 does it."""
        device = self.translator.device.type
        if self.choice == "own":
            return "the engine is own"
        if self.choice == "auto" and device != "cpu":
            return f"CTranslate2 is chosen on CPUs only, and the model is on {device}"
        if search.n_best > 1:
            return f"n_best is {search.n_best}, and CTranslate2 keeps no more than a beam of finished hypotheses"
        return "" if self.opened.other else self.opened.note

    def name_for(self, search: Search) -> str:
        """Return the name of the engine that does this search."""
        return OWN if self.why_own(search) else CTRANSLATE2

    def search_n_best(self, sources: Sequence[Sequence[int]], search: Search) -> list[list[Hypothesis]]:
        """Search like ``Translator.search_n_best``; the own engine searches sources with too long possible outputs."""
        other = None if self.why_own(search) else self.opened.other
        hypotheses: dict[int, list[Hypothesis]] = {}
        if other:
            plain = [n for n, source in enumerate(sources) if other.can_search(source, search)]
            hypotheses |= zip(plain, other.search_n_best([sources[n] for n in plain], search), strict=True)
        own = [n for n in range(len(sources)) if n not in hypotheses]
        found = self.translator.search_n_best([sources[n] for n in own], search.decoding, search.n_best)
        hypotheses |= zip(own, found, strict=True)
        return [hypotheses[n] for n in range(len(sources))]
