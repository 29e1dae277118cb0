"""Translates lines of any length: splits them into sentences, translates these and joins the results by a space.

There is one result per line, whatever a line contains. The caller provides the functions that split a line and search
a sentence.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import fsum
from typing import Literal, Protocol

from ..config import Decoding, Sampling
from ..config.keying import require
from ..config.special_pieces import UNK
from .beam_search import Hypothesis
from .sentence_splitting import SentenceSplitter, unsplit
from .translator import LONGEST_SOURCE, Prefixes, Translation, Translator

SearchFunction = Callable[[Sequence[Sequence[int]], Prefixes, int], Sequence[Sequence[Hypothesis]]]
"""Takes the tokens of sentences, the tokens that some outputs begin with, and the number of the first sentence; returns
the hypotheses of each sentence, best first."""


class BeamSearch(Protocol):
    """A beam search over sentences: a ``Translator``, or another engine for its model."""

    def search_n_best(
        self, sources: Sequence[Sequence[int]], decoding: Decoding, n_best: int, prefixes: Prefixes | None = None
    ) -> list[list[Hypothesis]]:
        """Search as ``Translator.search_n_best`` does."""
        ...


SplitMode = Literal["long", "always", "never"]


@dataclass(frozen=True)
class Splitting:
    """Which lines are split: with ``long`` those of more than ``longest`` tokens, the longest source in training."""

    when: SplitMode = "always"
    sentences: SentenceSplitter = unsplit
    longest: int = LONGEST_SOURCE

    def __post_init__(self) -> None:
        require(self.when in ("long", "always", "never"), "split", self.when, "long, always or never")
        require(self.longest >= 1, "longest", self.longest, "a whole number of at least 1")


@dataclass(frozen=True)
class TranslatedLine:
    """The translations of a line, best first; none if its longest sentence or its prefix is too long for the model, or
    its prefix has a word that the model does not know."""

    translations: tuple[Translation, ...]
    sentences: int
    longest: int
    """Tokens of its longest sentence."""
    prefix: int = 0
    """Tokens of its prefix."""
    unknown: str = ""
    """The first word of its prefix that is not in the vocabulary."""


def beam_searcher(
    translator: Translator, decoding: Decoding, n_best: int = 1, engine: BeamSearch | None = None
) -> SearchFunction:
    """Return a beam search (§6.1) by ``engine``, by default the translator.

    Raises ValueError if ``n_best`` exceeds what the beam can finish.
    """
    decoding.check_n_best(n_best)
    search = engine or translator
    return lambda sources, prefixes, _: search.search_n_best(sources, decoding, n_best, prefixes)


def check_known(name: str, text: str, translator: Translator) -> None:
    """Raise ValueError that names the first word or character of a text which is not in the vocabulary."""
    unknown = translator.vocabulary.unknown_in_target(text.strip())
    allowed = f"a text whose words and characters are in the model's vocabulary; {unknown!r} is not"
    require(not unknown, name, text, allowed)


def sampler(translator: Translator, sampling: Sampling, decoding: Decoding) -> SearchFunction:
    """Return a function that draws one output per sentence, which depends on the seed and the sentence's number."""

    def search(sources: Sequence[Sequence[int]], prefixes: Prefixes, first: int) -> list[list[Hypothesis]]:
        numbers = range(first, first + len(sources))
        return [[each] for each in translator.sample(sources, sampling, decoding, prefixes, numbers)]

    return search


class LineTranslator:
    """Translates blocks of lines; sentences are numbered across blocks."""

    def __init__(self, translator: Translator, search: SearchFunction, splitting: Splitting, n_best: int = 1) -> None:
        self.translator, self.search, self.splitting, self.n_best = translator, search, splitting, n_best
        self.limit = translator.longest_source
        self.next_number = 0

    def translate(self, lines: Sequence[str], prefixes: Sequence[str] | None = None) -> list[TranslatedLine]:
        """Translate lines; the results are in the same order, and an empty line stays empty.

        ``prefixes`` has a text for each line, which its translation begins with.
        """
        encoded = self.split_and_encode(lines)
        vocabulary = self.translator.vocabulary
        begins = [text.strip() for text in prefixes or [""] * len(lines)]
        forced = vocabulary.encode_target(begins)
        longest = [max(map(len, sources), default=0) for sources in encoded]
        fits = [
            length <= self.limit and len(prefix) < self.translator.longest_target and UNK not in prefix
            for length, prefix in zip(longest, forced, strict=True)
        ]
        accepted = [sources if fit else [] for sources, fit in zip(encoded, fits, strict=True)]
        ends = list(accumulate(map(len, accepted)))
        firsts = [end - len(sources) for end, sources in zip(ends, accepted, strict=True)]
        begun = {
            first: prefix for first, prefix, sources in zip(firsts, forced, accepted, strict=True) if prefix and sources
        }
        found = self.search([source for sources in accepted for source in sources], begun, self.next_number)
        results = []
        for number, sources in enumerate(encoded):
            translations = self.combine_sentences(found[firsts[number] : ends[number]]) if fits[number] else ()
            prefix = forced[number]
            unknown = vocabulary.unknown_in_target(begins[number]) if UNK in prefix else ""
            results.append(TranslatedLine(translations, len(sources), longest[number], len(prefix), unknown))
        self.next_number += len(found)
        return results

    def split_and_encode(self, lines: Sequence[str]) -> list[list[list[int]]]:
        """Return the tokens of each sentence of each line; a line without text has no sentence."""
        encode, splitting = self.translator.vocabulary.encode_source, self.splitting
        read = self.translator.vocabulary.read(lines)
        encoded = [[source] if source else [] for source in encode(read)]
        if splitting.when == "never":
            return encoded
        for number, sources in enumerate(encoded):
            if sources and (splitting.when == "always" or len(sources[0]) > splitting.longest):
                encoded[number] = [source for source in encode(splitting.sentences(read[number])) if source]
        return encoded

    def combine_sentences(self, sentences: Iterable[Sequence[Hypothesis]]) -> tuple[Translation, ...]:
        """Return the best combinations of one hypothesis per sentence by the sum of scores, fewest unfinished first."""
        best: list[tuple[Hypothesis, ...]] = [()]
        for hypotheses in sentences:
            longer = [(*before, hypothesis) for before in best for hypothesis in hypotheses]
            # A sum grows with each of its parts, so no dropped beginning can lead to a better combination.
            best = sorted(longer, key=_rank)[: self.n_best]
        return tuple(self._translation(hypotheses) for hypotheses in best)

    def _translation(self, hypotheses: Sequence[Hypothesis]) -> Translation:
        texts = (self.translator.text(hypothesis) for hypothesis in hypotheses)
        return Translation(
            text=" ".join(text for text in texts if text),
            score=fsum(hypothesis.score for hypothesis in hypotheses),
            log_probability=fsum(hypothesis.log_probability for hypothesis in hypotheses),
            pieces=tuple(piece for hypothesis in hypotheses for piece in hypothesis.pieces),
            length=sum(hypothesis.length for hypothesis in hypotheses),
            finished=all(hypothesis.finished for hypothesis in hypotheses),
        )

    def why_empty(self, line: TranslatedLine, number: int) -> str:
        """Return the error message of a line without a translation."""
        if line.unknown:
            return f"line {number} has a prefix with {line.unknown!r}, which is not in this model's vocabulary"
        if line.longest <= self.limit:
            longest = self.translator.longest_target - 1
            return (
                f"line {number} has a prefix of {line.prefix} pieces, the longest that this model takes has {longest}"
            )
        part = "a sentence of" if line.sentences > 1 or self.splitting.when != "never" else "in all"
        return f"line {number} has {part} {line.longest} pieces, the longest that this model takes has {self.limit}"


def _rank(hypotheses: Sequence[Hypothesis]) -> tuple[int, float]:
    return sum(not each.finished for each in hypotheses), -fsum(each.score for each in hypotheses)
