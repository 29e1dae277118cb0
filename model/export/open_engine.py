"""Opens the engine of a model's searches: CTranslate2 on CPUs, if it is installed and finds what our own does."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from ..config import Decoding
from ..config.engines import EngineChoice, Quantization
from ..config.keying import require
from ..decoding.search_engine import SearchEngine, why_unsupported
from ..decoding.translator import Translator

LEAST_EQUAL = 0.99
"""Share of the compared sentences that CTranslate2 must translate as the own search does, in float32."""


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
    choice = settings.choice
    quantization = settings.quantization
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
