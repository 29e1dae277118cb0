"""Computes the attention of one sentence and its translation."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from infra.errors import BadConfiguration
from model.decoding.translation import AttentionMap, Search

if TYPE_CHECKING:
    from model.decoding.version_translator import VersionTranslator

LONGEST = 120
"""The most tokens per side that are readable in a picture."""


def attention_of(
    translator: "VersionTranslator", sentence: str, target: str = ""
) -> tuple[str, Mapping[str, AttentionMap]]:
    """Return the translation, or ``target`` in its place, and the weights of each kind of attention.

    Raises BadConfiguration for an empty sentence, and for a sentence or target that is too long for a picture.
    """
    [source_length] = translator.lengths([sentence])
    if not source_length:
        raise BadConfiguration("the sentence is empty, allowed is a sentence")
    limit = min(LONGEST, translator.translator.longest_source)
    for name, length in (("the sentence", source_length), ("the target", translator.target_length(target))):
        if length > limit:
            raise BadConfiguration(f"{name} has {length} pieces, allowed are {limit}")
    if target:
        return target, translator.attention(sentence, target)
    [found] = translator.translate([sentence], Search(translator.decoding, split="never"))
    best = found.hypotheses[0]
    return best.text, translator.attention(sentence, best.pieces[:limit])
