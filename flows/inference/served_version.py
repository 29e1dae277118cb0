"""A loaded version as the web page sees it, and the attention of one sentence."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from flows.inference.load_version import title
from infra.errors import BadConfiguration
from infra.tracking.model_version import Version
from infra.web.limits import Limits
from infra.web.protocol import SearchSettings, SentenceJson, Source
from model.config import Sampling
from model.decoding.translation import AttentionMap, Search, Translation

if TYPE_CHECKING:
    from model.decoding.version_translator import VersionTranslator


@dataclass(frozen=True)
class ServedVersion:
    """Implements ``infra.web.protocol.ServedModel`` for a version."""

    version: Version
    translator: "VersionTranslator"

    @property
    def name(self) -> str:
        return title(self.version)

    @property
    def aliases(self) -> tuple[str, ...]:
        return self.version.aliases

    @property
    def remark(self) -> str:
        return self.version.remark

    @property
    def languages(self) -> tuple[str, str]:
        tags = self.version.tags
        return tags.get("source_language", ""), tags.get("target_language", "")

    @property
    def search(self) -> SearchSettings:
        return SearchSettings(self.translator.decoding.beam, self.translator.decoding.alpha)

    @property
    def engine(self) -> str:
        return self.translator.engine.name

    @property
    def longest(self) -> int:
        return self.translator.translator.longest_source

    def sentences(self, line: str) -> Sequence[str]:
        return self.translator.sentences(line)

    def lengths(self, sentences: Sequence[str]) -> Sequence[int]:
        return self.translator.lengths(sentences)

    def prefix_length(self, prefix: str) -> int:
        return self.translator.prefix_length(prefix)

    def unknown_in_prefix(self, prefix: str) -> str:
        return self.translator.unknown_in_prefix(prefix)

    def most_hypotheses(self, beam: int) -> int:
        return replace(self.translator.decoding, beam=beam).most_hypotheses

    def translate(self, sources: Sequence[Source], search: SearchSettings, n_best: int) -> list[SentenceJson]:
        decoding = replace(self.translator.decoding, beam=search.beam, alpha=search.alpha)
        sampling = Sampling(**asdict(search.sampling)) if search.sampling else None
        found = self.translator.translate(
            [source.text for source in sources],
            Search(decoding, n_best, sampling, split="never"),
            [source.prefix for source in sources],
            [source.number for source in sources],
        )
        return [self._sentence(source.text, each) for source, each in zip(sources, found, strict=True)]

    def attention(self, source: str, target: str | Sequence[int], kind: str) -> dict[str, Any]:
        found = self.translator.attention(source, target)[kind]
        weights = found.weights.astype(float).round(4).tolist()
        return {"rows": list(found.rows), "columns": list(found.columns), "weights": weights}

    def _sentence(self, source: str, found: Translation) -> SentenceJson:
        vocabulary = self.translator.translator.vocabulary
        return {
            "source": source,
            "pieces": [piece for tokens in found.sources for piece in vocabulary.source_pieces(tokens)],
            "hypotheses": [
                each.as_json() | {"ids": each.pieces, "pieces": vocabulary.target_pieces(each.pieces)}
                for each in found.hypotheses
            ],
            "engine": found.engine,
        }


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
