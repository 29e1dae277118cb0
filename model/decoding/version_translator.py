"""Translates texts with a registered version: ``VersionTranslator`` reads, splits, searches and joins.

The translation page, ``repro translate``, the Python API and the registered MLflow model all use it. The stages of a
run translate whole sets with ``model.translate`` and ``model.translate_text``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..config import Decoding
from ..config.special_pieces import BOS, EOS, SPECIAL_TOKENS, UNK
from .search_engine import SearchEngine
from .sentence_splitting import SentenceSplitter
from .translation import AttentionMap, Hypothesis, Search, SplitMode, Translation, best_combinations
from .translator import Translator


@dataclass(frozen=True)
class VersionTranslator:
    """A trained model that translates texts of any length.

    ``decoding`` are the search settings of its run. ``trained_length`` is the number of tokens of the longest source in
    training.
    """

    name: str
    translator: Translator
    engine: SearchEngine
    split: SentenceSplitter
    decoding: Decoding
    trained_length: int

    def translate(self, texts: Sequence[str], search: Search) -> list[Translation]:
        """Translate texts sentence by sentence; the results are in the same order, and an empty text stays empty."""
        encoded = self._encoded(texts, search.split)
        read = [(sentences, self._refusal(sentences, search.split)) for sentences in encoded]
        sources = [source for sentences, refusal in read if not refusal for source in sentences]
        found = iter(self.engine.search_n_best(sources, search))
        engine = self.engine.name_for(search)
        results = []
        for sentences, refusal in read:
            hypotheses = () if refusal else self._best_of_text([next(found) for _ in sentences], search.n_best)
            results.append(Translation(hypotheses, sentences, engine, refusal))
        return results

    def sentences(self, text: str) -> list[str]:
        """Split a text into non-empty sentences."""
        [read] = self.translator.vocabulary.read([text])
        found = self.split(read)
        return [sentence for sentence, length in zip(found, self.lengths(found), strict=True) if length]

    def target_length(self, text: str) -> int:
        """Count the tokens of a translation."""
        return len(self.translator.vocabulary.encode_target([text.strip()])[0])

    def lengths(self, sentences: Sequence[str]) -> list[int]:
        """Count the tokens of each source sentence."""
        vocabulary = self.translator.vocabulary
        return [len(source) for source in vocabulary.encode_source(vocabulary.read(sentences))]

    def attention(self, source: str, target: str | Sequence[int]) -> Mapping[str, AttentionMap]:
        """Compute the attention of a sentence and its translation; ``target`` is text or token ids.

        Returns ``cross`` (the translation attends to the source), ``encoder`` and ``decoder`` (a side attends to
        itself). Raises ValueError for an id that is not in the vocabulary, and for a side that is too long.
        """
        vocabulary = self.translator.vocabulary
        [read] = vocabulary.encode_source(vocabulary.read([source]))
        written = vocabulary.encode_target([target.strip()])[0] if isinstance(target, str) else list(target)
        for number in written:
            if not UNK <= number < vocabulary.target_size:
                raise ValueError(f"ids has {number}, allowed is {UNK} to {vocabulary.target_size - 1}")
        self.translator.check_source(read, "source")
        self.translator.check_target(written, "target")
        found = self.translator.attention_maps(read, written)
        of_source = tuple(vocabulary.source_pieces(self.translator.source_tokens(read)))
        pieces = vocabulary.target_pieces(written)
        writes = (*pieces, SPECIAL_TOKENS[EOS])
        reads = (SPECIAL_TOKENS[BOS], *pieces)
        return {
            "cross": AttentionMap(writes, of_source, found.cross.numpy()),
            "encoder": AttentionMap(of_source, of_source, found.encoder.numpy()),
            "decoder": AttentionMap(writes, reads, found.decoder.numpy()),
        }

    def _encoded(self, texts: Sequence[str], split: SplitMode) -> list[list[list[int]]]:
        """Return the tokens of each sentence of each text; a text without tokens has no sentence."""
        vocabulary = self.translator.vocabulary
        read = vocabulary.read(texts)
        encoded = [[source] if source else [] for source in vocabulary.encode_source(read)]
        if split == "never":
            return encoded
        for number, sources in enumerate(encoded):
            if sources and (split == "always" or len(sources[0]) > self.trained_length):
                encoded[number] = [source for source in vocabulary.encode_source(self.split(read[number])) if source]
        return encoded

    def _refusal(self, sources: Sequence[Sequence[int]], split: SplitMode) -> str:
        """Return the reason why the model cannot translate a text; "" if it can."""
        longest = max(map(len, sources), default=0)
        if longest > self.translator.longest_source:
            part = "a sentence of" if len(sources) > 1 or split != "never" else "in all"
            limit = self.translator.longest_source
            return f"{part} {longest} pieces, the longest that this model takes has {limit}"
        return ""

    def _best_of_text(self, sentences: Sequence[Sequence[Hypothesis]], n_best: int) -> tuple[Hypothesis, ...]:
        combinations = best_combinations(sentences, n_best)
        decoded = ([replace(each, text=self.translator.text(each)) for each in chosen] for chosen in combinations)
        return tuple(Hypothesis.joined(chosen) for chosen in decoded)
