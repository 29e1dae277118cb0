"""Opens CTranslate2 for a model: its form in the cache, which is made and compared with the own search at first use."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from ..config import Decoding
from ..config.decoding import Quantization
from ..decoding.search_engine import Opened
from ..decoding.translator import Translator

LEAST_EQUAL = 0.99
"""Share of the compared sentences that CTranslate2 must translate as the own search does, in float32."""


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
    """Open CTranslate2 for a model, or say why it cannot be used.

    ``decoding`` is the search of the comparison: the model's own, since the result is kept with the form. ``lines`` are
    its sentences; without any, random sources are drawn. ``workers`` batches are searched at the same time, each with
    ``threads``. Raises ImportError if CTranslate2 is ``required`` and its library cannot be loaded.
    """
    if not required and find_spec("ctranslate2") is None:
        return Opened(None, "the library ctranslate2 is not installed")
    try:
        from .ctranslate2_form import CTranslate2Search, find_or_make
    except ImportError as error:  # such as a library that this system's loader refuses
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
