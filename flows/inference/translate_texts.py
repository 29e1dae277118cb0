"""Translate texts by a loaded version, each sentence by sentence, as ``repro translate`` does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from flows.inference.served_model import ServedVersion
from infra.errors import BadConfiguration, BadData

if TYPE_CHECKING:
    from model.decoding.translator import Translation


def translate_texts(
    served: ServedVersion, texts: Sequence[str], settings: Mapping[str, float], n_best: int
) -> list[tuple[Translation, ...]]:
    """The ``n_best`` translations of each text, best first.

    ``settings`` are fields of the version's ``Decoding`` to replace. Raises BadConfiguration for a value that is not
    allowed, BadData if a text has a sentence that is too long for the model; then nothing is translated.
    """
    from model.decoding.lines import LineTranslator, Splitting, beam_searcher

    try:
        decoding = replace(served.decoding, **settings)  # type: ignore[arg-type]
        search = beam_searcher(served.translator, decoding, n_best, served.engines)
    except ValueError as error:
        raise BadConfiguration(f"{error}") from error
    lines = LineTranslator(served.translator, search, Splitting(sentences=served.split), n_best)
    for number, sources in enumerate(lines.split_and_encode(texts)):
        longest = max(map(len, sources), default=0)
        if longest > lines.limit:
            raise BadData(
                f"text {number} has a sentence of {longest} pieces, the longest that {served.name} takes has "
                f"{lines.limit}; shorten it or leave it out"
            )
    return [line.translations for line in lines.translate(texts)]
