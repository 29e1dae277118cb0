"""Serves a registered version: its description, translations and attention in JSON."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from infra.tracking.model_version import Version
from model.decoding.translation import Search

if TYPE_CHECKING:
    from model.decoding.version_translator import VersionTranslator

AttentionKind = Literal["cross", "encoder", "decoder"]
"""``cross``: the translation attends to the source; ``encoder`` and ``decoder``: a side attends to itself."""

SentenceJson = dict[str, Any]
"""A translated sentence as JSON: ``source``, its ``pieces``, the ``engine`` that searched, and ``hypotheses``, best
first.

A hypothesis has ``text``, ``ids`` (its tokens without eos) and ``pieces`` (their readable form), ``score``,
``log_probability`` (natural) and ``finished``: false if it was cut at the greatest length.
"""


class ServedVersion:
    """A loaded version. Call ``translate`` and ``attention`` on one thread, one at a time."""

    def __init__(self, version: Version, model: "VersionTranslator") -> None:
        self.model = model
        self.name = model.name
        self.aliases = version.aliases
        self.remark = version.remark
        self.languages = (version.tags.get("source_language", ""), version.tags.get("target_language", ""))
        """Language codes; empty if unknown."""
        self.decoding = model.decoding
        self.engine = model.engine.name_for(Search(model.decoding))
        """The engine of its searches, unless a request needs another one."""
        self.longest = model.translator.longest_source
        """The most tokens that a sentence may have."""

    def translate(self, sentences: Sequence[str], search: Search) -> list[SentenceJson]:
        """Translate sentences of at most ``longest`` tokens."""
        vocabulary = self.model.translator.vocabulary
        found = self.model.translate(sentences, search)
        return [
            {
                "source": sentence,
                "pieces": [piece for tokens in each.sources for piece in vocabulary.source_pieces(tokens)],
                "hypotheses": [
                    best.as_json() | {"ids": best.pieces, "pieces": vocabulary.target_pieces(best.pieces)}
                    for best in each.hypotheses
                ],
                "engine": each.engine,
            }
            for sentence, each in zip(sentences, found, strict=True)
        ]

    def attention(self, source: str, target: str | Sequence[int], kind: AttentionKind) -> dict[str, Any]:
        """Compute the attention of a sentence and its translation, given as text or as token ids.

        Returns ``rows`` (queries) and ``columns`` (keys), the tokens, and ``weights`` by layer, head, row and column.
        Raises ValueError for an id that is not in the vocabulary.
        """
        found = self.model.attention(source, target)[kind]
        weights = found.weights.astype(float).round(4).tolist()
        return {"rows": list(found.rows), "columns": list(found.columns), "weights": weights}
