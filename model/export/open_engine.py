"""Opens CTranslate2 for a model; the first use makes the cached form and compares it with the own search."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from ..config import Decoding
from ..config.decoding import Quantization
from ..decoding.search_engine import Opened
from ..decoding.translator import Translator

LEAST_EQUAL = 0.99
"""Minimum share of the compared sentences that CTranslate2 in float32 must translate like the own search."""


def open_ctranslate2(
    translator: Translator,
    weights: Path,
    vocabulary: Path,
    cache: Path,
    decoding: Decoding,
    *,
    required: bool = False,
    quantization: Quantization = "float32",
    workers: int = 1,
    threads: int = 1,
    lines: Sequence[str] = (),
) -> Opened:
    """Open CTranslate2 for a model; if it cannot be used, return the reason as ``Opened.note``.

    ``decoding`` is the search of the comparison. It must be the model's own, because the result is stored with the
    form. ``lines`` are the sentences of the comparison; without lines it uses random sources. ``workers`` batches are
    searched at the same time, each with ``threads``. Raises ImportError if CTranslate2 is ``required`` and its library
    cannot be loaded.
    """
    if not required and find_spec("ctranslate2") is None:
        return Opened(None, "the library ctranslate2 is not installed")
    try:
        from .ctranslate2_form import CTranslate2Search, find_or_make
    except ImportError as error:  # for example, the system's loader rejects the library
        if required:
            raise
        return Opened(None, f"the library ctranslate2 cannot be loaded: {error}")
    try:
        form = find_or_make(cache, weights, vocabulary, translator, decoding, quantization, lines)
    except ValueError as error:
        return Opened(None, f"CTranslate2 cannot represent the model: {error}")
    except OSError as error:
        return Opened(None, f"{cache} cannot hold the model's CTranslate2 form: {error.strerror or error}")
    note = f"{form.equal} of {form.sentences} sentences translated as by the own search"
    if quantization == "float32" and form.equal < LEAST_EQUAL * form.sentences:
        return Opened(None, f"CTranslate2 differs: {note}, allowed are {LEAST_EQUAL:.0%}")
    other = CTranslate2Search(form.folder, translator.vocabulary, threads, workers, translator.device.type)
    return Opened(other, f"{quantization}, {note}")
