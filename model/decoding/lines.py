"""Lines of any length become lines: split into sentences where that is wished, translated, joined by a space.

In come lines, out comes an answer for each, so that lines out are as many as lines in, whatever is in them. How a line
is split and how a sentence is searched are functions from outside; of files and streams nothing is known here.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import fsum
from typing import Literal

from ..config import Decoding, Sampling
from ..config.keying import require
from .beam_search import Hypothesis
from .sentence_splitting import SentenceSplitter, unsplit
from .translator import LONGEST_SOURCE, Translation, Translator

SearchFunction = Callable[[Sequence[Sequence[int]], int], Sequence[Sequence[Hypothesis]]]
"""The hypotheses of each sentence, best first, from its pieces; and the number of the first of these sentences."""
SplitMode = Literal["long", "always", "never"]


@dataclass(frozen=True)
class Splitting:
    """Which lines are split. ``long``: those of more than ``longest`` pieces, which training has seen none of."""

    when: SplitMode = "always"
    sentences: SentenceSplitter = unsplit
    longest: int = LONGEST_SOURCE

    def __post_init__(self) -> None:
        require(self.when in ("long", "always", "never"), "split", self.when, "long, always or never")
        require(self.longest >= 1, "longest", self.longest, "a whole number of at least 1")


@dataclass(frozen=True)
class TranslatedLine:
    """A line's translations, best first; none where its longest sentence is too long for the model."""

    translations: tuple[Translation, ...]
    sentences: int
    longest: int
    """Pieces of its longest sentence."""


def beam_searcher(translator: Translator, decoding: Decoding, n_best: int = 1) -> SearchFunction:
    """Beam search (§6.1). Raises ValueError for more hypotheses than the beam is wide."""
    require(1 <= n_best <= decoding.beam, "n_best", n_best, f"1 to decoding.beam, which is {decoding.beam}")
    return lambda sources, _: translator.search_n_best(sources, decoding, n_best)


def sampler(translator: Translator, sampling: Sampling, decoding: Decoding) -> SearchFunction:
    """One output of each sentence, drawn by its probabilities: a function of the seed and the sentence's number."""
    return lambda sources, first: [[each] for each in translator.sample(sources, sampling, decoding, first=first)]


class LineTranslator:
    """Translates lines, as many at once as it is given; sentences are numbered over all calls."""

    def __init__(self, translator: Translator, search: SearchFunction, splitting: Splitting, n_best: int = 1) -> None:
        self.translator, self.search, self.splitting, self.n_best = translator, search, splitting, n_best
        self.limit = translator.longest_source
        self.next_number = 0

    def translate(self, lines: Sequence[str]) -> list[TranslatedLine]:
        """One answer for each line, in their order; an empty line stays empty."""
        divided = self.split_and_encode(lines)
        longest = [max(map(len, sources), default=0) for sources in divided]
        asked = [sources if most <= self.limit else [] for sources, most in zip(divided, longest, strict=True)]
        found = self.search([source for sources in asked for source in sources], self.next_number)
        ends = list(accumulate(map(len, asked)))
        answers = []
        for sources, most, end in zip(divided, longest, ends, strict=True):
            own = found[end - len(sources) : end] if most <= self.limit else []
            translations = self.combine_sentences(own) if most <= self.limit else ()
            answers.append(TranslatedLine(translations, len(sources), most))
        self.next_number += len(found)
        return answers

    def split_and_encode(self, lines: Sequence[str]) -> list[list[list[int]]]:
        """The pieces of each sentence of each line; none of a line without text."""
        encode, splitting = self.translator.vocabulary.encode_source, self.splitting
        stripped = [line.strip() for line in lines]
        divided = [[source] if source else [] for source in encode(stripped)]
        if splitting.when == "never":
            return divided
        for number, sources in enumerate(divided):
            if sources and (splitting.when == "always" or len(sources[0]) > splitting.longest):
                divided[number] = [source for source in encode(splitting.sentences(stripped[number])) if source]
        return divided

    def combine_sentences(self, sentences: Iterable[Sequence[Hypothesis]]) -> tuple[Translation, ...]:
        """The best ways to take one hypothesis of each sentence, by the sum of their scores; finished ones first."""
        best: list[tuple[Hypothesis, ...]] = [()]
        for hypotheses in sentences:
            longer = [(*before, hypothesis) for before in best for hypothesis in hypotheses]
            # Stable, and a sum grows with each of its parts: no better one begins with what is dropped here.
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

    def too_long(self, line: TranslatedLine, number: int) -> str:
        """One sentence that says what is wrong with a line that has no translation."""
        part = "a sentence of" if line.sentences > 1 or self.splitting.when != "never" else "in all"
        return f"line {number} has {part} {line.longest} pieces, the longest that this model takes has {self.limit}"


def _rank(hypotheses: Sequence[Hypothesis]) -> tuple[int, float]:
    return sum(not each.finished for each in hypotheses), -fsum(each.score for each in hypotheses)
