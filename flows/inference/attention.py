"""The attention of one sentence and its translation, by a loaded version."""

from collections.abc import Mapping

from flows.inference.served_model import ServedVersion
from infra.errors import BadConfiguration
from infra.web.limits import Limits
from infra.web.protocol import AttentionKind, AttentionMap, Source


def attention_of(
    served: ServedVersion, sentence: str, target: str = ""
) -> tuple[str, Mapping[AttentionKind, AttentionMap]]:
    """The translation, or ``target`` in its place, and the weights of each kind of attention.

    Raises BadConfiguration for an empty sentence, and for a sentence or target that is too long for a picture.
    """
    if not served.lengths([sentence])[0]:
        raise BadConfiguration("the sentence is empty, allowed is a sentence")
    limit = min(Limits().attention_pieces, served.longest)
    for name, text in (("the sentence", sentence), ("the target", target)):
        length = served.lengths([text])[0]
        if length > limit:
            raise BadConfiguration(f"{name} has {length} pieces, allowed are {limit}")
    if target:
        return target, served.maps(sentence, target)
    [own] = served.translate([Source(sentence)], served.search, 1)
    best = own.hypotheses[0]
    return best.text, served.maps(sentence, best.ids[:limit])
