"""Chooses the engine of a beam search: CTranslate2 on CPUs where it searches as the own engine does, else that one.

CTranslate2 is several times faster for few sentences. Its library is imported only if it may be used.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from ..config import Decoding
from ..config.engines import EngineChoice, Quantization
from ..config.keying import require
from ..decoding.beam_search import Hypothesis
from ..decoding.translator import Prefixes, Translator

if TYPE_CHECKING:
    from .ctranslate2_search import CTranslate2Search

OWN, CTRANSLATE2 = "own search", "CTranslate2"
"""The names of the engines in results."""
LEAST_EQUAL = 0.99
"""Share of the compared sentences that CTranslate2 must translate as the own search does, in float32."""


@dataclass(frozen=True)
class SearchEngine:
    """A model's beam search. ``other`` is None if the own engine searches everything, because of ``reason``."""

    translator: Translator
    other: "CTranslate2Search | None" = None
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
        begun, own = prefixes or {}, self.translator
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


@dataclass(frozen=True)
class EngineSettings:
    """Which engine is wanted, for which searches."""

    decoding: Decoding
    cache: Path
    """The folder that holds CTranslate2 forms of models."""
    choice: EngineChoice = "auto"
    """``auto`` uses CTranslate2 on CPUs if its library can be loaded."""
    quantization: Quantization = "float32"
    n_best: int = 1
    """The greatest number of hypotheses that will be asked for."""
    workers: int = 1
    """Batches that are searched at the same time, each with ``threads``."""
    threads: int = 1
    lines: Sequence[str] = ()
    """The sentences by which a form is compared with the own search; without any, random sources are drawn."""
    compared: Decoding | None = None
    """The search of the comparison, by default ``decoding``. It should be the model's own: the result is kept with the
    form, and must not depend on who uses it first."""


def open_engine(translator: Translator, weights: Path, vocabulary: Path, settings: EngineSettings) -> SearchEngine:
    """Return the engine for a model: its CTranslate2 form in the cache, which is made and compared at first use.

    Raises ValueError for an unknown choice, ImportError if ``ctranslate2`` is asked for and its library cannot be
    loaded.
    """
    choice, quantization = settings.choice, settings.quantization
    require(choice in ("auto", "own", "ctranslate2"), "engine", choice, "auto, own or ctranslate2")

    def own(reason: str) -> SearchEngine:
        return SearchEngine(translator, reason=reason)

    if choice == "own":
        return own("the engine is own")
    if len(translator.models) > 1:
        return own("an ensemble is searched by the own engine alone")
    if choice == "auto" and translator.device.type != "cpu":
        return own(f"CTranslate2 is chosen on CPUs only, and the model is on {translator.device.type}")
    if reason := why_unsupported(settings.decoding, settings.n_best):
        return own(reason)
    if choice == "auto" and find_spec("ctranslate2") is None:
        return own("the library ctranslate2 is not installed")
    try:
        from .ctranslate2_form import find_or_make
        from .ctranslate2_search import CTranslate2Search
    except ImportError as error:  # such as a library that this system's loader refuses
        if choice == "ctranslate2":
            raise
        return own(f"the library ctranslate2 cannot be loaded: {error}")
    try:
        form = find_or_make(
            settings.cache,
            weights,
            vocabulary,
            translator,
            settings.compared or settings.decoding,
            quantization,
            settings.lines,
        )
    except ValueError as error:
        return own(f"CTranslate2 cannot represent the model: {error}")
    except OSError as error:
        return own(f"{settings.cache} cannot hold the model's CTranslate2 form: {error.strerror or error}")
    note = f"{form.equal} of {form.sentences} sentences translated as by the own search"
    if quantization == "float32" and form.equal < LEAST_EQUAL * form.sentences:
        return own(f"CTranslate2 differs: {note}, allowed are {LEAST_EQUAL:.0%}")
    other = CTranslate2Search(
        form.folder, translator.vocabulary, settings.threads, settings.workers, translator.device.type
    )
    return SearchEngine(translator, other, note=f"{quantization}, {note}")
