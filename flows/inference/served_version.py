"""A loaded version as the web page serves it, and the attention of one sentence."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from infra.errors import BadConfiguration
from infra.tracking.model_version import Version
from infra.web.limits import Limits
from infra.web.served_model import SearchSettings, SentenceJson, ServedModel, Source
from model.config import Sampling
from model.decoding.translation import AttentionMap, Search

if TYPE_CHECKING:
    from model.decoding.version_translator import VersionTranslator


def served_model(version: Version, translator: "VersionTranslator") -> ServedModel:
    """Return a version as the page serves it."""
    own = translator.decoding
    vocabulary = translator.translator.vocabulary

    def translate(sources: Sequence[Source], search: SearchSettings, n_best: int) -> list[SentenceJson]:
        sampling = Sampling(**asdict(search.sampling)) if search.sampling else None
        found = translator.translate(
            [source.text for source in sources],
            Search(replace(own, beam=search.beam, alpha=search.alpha), n_best, sampling, split="never"),
            [source.prefix for source in sources],
            [source.number for source in sources],
        )
        return [
            {
                "source": source.text,
                "pieces": [piece for tokens in each.sources for piece in vocabulary.source_pieces(tokens)],
                "hypotheses": [
                    best.as_json() | {"ids": best.pieces, "pieces": vocabulary.target_pieces(best.pieces)}
                    for best in each.hypotheses
                ],
                "engine": each.engine,
            }
            for source, each in zip(sources, found, strict=True)
        ]

    def attention(source: str, target: str | Sequence[int], kind: str) -> dict[str, Any]:
        found = translator.attention(source, target)[kind]
        weights = found.weights.astype(float).round(4).tolist()
        return {"rows": list(found.rows), "columns": list(found.columns), "weights": weights}

    return ServedModel(
        name=translator.name,
        aliases=version.aliases,
        remark=version.remark,
        languages=(version.tags.get("source_language", ""), version.tags.get("target_language", "")),
        search=SearchSettings(own.beam, own.alpha),
        engine=translator.engine.name_for(Search(own)),
        longest=translator.translator.longest_source,
        sentences=translator.sentences,
        lengths=translator.lengths,
        prefix_length=translator.prefix_length,
        unknown_in_prefix=translator.unknown_in_prefix,
        most_hypotheses=lambda beam: replace(own, beam=beam).most_hypotheses,
        translate=translate,
        attention=attention,
    )


def attention_of(
    translator: "VersionTranslator", sentence: str, target: str = ""
) -> tuple[str, Mapping[str, AttentionMap]]:
    """The translation, or ``target`` in its place, and the weights of each kind of attention.

    Raises BadConfiguration for an empty sentence, and for a sentence or target that is too long for a picture.
    """
    if not translator.lengths([sentence])[0]:
        raise BadConfiguration("the sentence is empty, allowed is a sentence")
    limit = min(Limits().attention_pieces, translator.translator.longest_source)
    for name, text in (("the sentence", sentence), ("the target", target)):
        length = translator.lengths([text])[0]
        if length > limit:
            raise BadConfiguration(f"{name} has {length} pieces, allowed are {limit}")
    if target:
        return target, translator.attention(sentence, target)
    [found] = translator.translate([sentence], Search(translator.decoding, split="never"))
    best = found.hypotheses[0]
    return best.text, translator.attention(sentence, best.pieces[:limit])
