"""The settings and the results of a translation. Loads neither torch nor numpy."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import fsum
from typing import TYPE_CHECKING, Any, Literal, get_args

from ..config import Decoding
from ..config.keying import require

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SplitMode = Literal["long", "always", "never"]


@dataclass(frozen=True)
class Hypothesis:
    """An output of a search for one sentence, or the joined outputs for a text's sentences.

    ``pieces`` are its tokens without bos and eos. ``length`` (|Y| in §6.1) includes eos; only a ``finished`` hypothesis
    has eos, others were cut at the maximum length. ``log_probability`` is the natural logarithm, summed over
    ``length`` tokens. ``score`` is ``log_probability`` / length penalty; the score of a text is the sum over its
    sentences. ``text`` is empty until the tokens are decoded.
    """

    pieces: tuple[int, ...]
    length: int
    log_probability: float
    score: float
    finished: bool
    text: str = ""

    @classmethod
    def joined(cls, sentences: Sequence["Hypothesis"]) -> "Hypothesis":
        """Join the hypotheses of the sentences of a text, in order."""
        return cls(
            pieces=tuple(piece for each in sentences for piece in each.pieces),
            length=sum(each.length for each in sentences),
            log_probability=fsum(each.log_probability for each in sentences),
            score=fsum(each.score for each in sentences),
            finished=all(each.finished for each in sentences),
            text=" ".join(each.text for each in sentences if each.text),
        )

    def as_json(self) -> dict[str, Any]:
        """Return text and scores; ``pieces`` is the number of tokens, including eos."""
        return {
            "text": self.text,
            "score": self.score,
            "log_probability": self.log_probability,
            "pieces": self.length,
            "finished": self.finished,
        }


@dataclass(frozen=True)
class Search:
    """The settings of a translation.

    ``split`` says which texts are split into sentences; ``long``: texts with more tokens than any source in training.
    Raises ValueError naming an impossible setting.
    """

    decoding: Decoding
    n_best: int = 1
    split: SplitMode = "always"

    def __post_init__(self) -> None:
        self.decoding.check_n_best(self.n_best)
        require(self.split in get_args(SplitMode), "split", self.split, ", ".join(get_args(SplitMode)))


def translator_params(decoding: Decoding) -> dict[str, bool | int | float | str]:
    """Return the parameters of ``predict`` with their defaults; ``decoding`` gives the defaults of the search.

    ``split`` is long, always or never; ``engine`` is auto, own or ctranslate2 (``model.decoding.search_engine``).
    """
    search = {name: value for name, value in decoding.search().items() if name not in ("numerics", "precision")}
    return {**search, "n_best": 1, "scores": False, "split": "always", "engine": "auto"}


@dataclass(frozen=True)
class Translation:
    """The hypotheses of a text, best first; none if the model cannot translate the text: ``refusal`` is the reason."""

    hypotheses: tuple[Hypothesis, ...]
    sources: Sequence[Sequence[int]]
    """The tokens of the text's sentences, without special tokens."""
    engine: str = ""
    """The engine that searched."""
    refusal: str = ""

    @property
    def longest(self) -> int:
        """Number of tokens of the longest sentence."""
        return max(map(len, self.sources), default=0)


@dataclass(frozen=True)
class AttentionMap:
    """Weights (layers, heads, rows, columns) of one kind of attention, and the tokens of its rows and columns.

    Each row sums to 1 over the columns.
    """

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    weights: "NDArray[np.float32]"


def best_combinations(sentences: Iterable[Sequence[Hypothesis]], n_best: int) -> list[tuple[Hypothesis, ...]]:
    """Return the best combinations of one hypothesis per sentence, by fewest unfinished, then by sum of scores."""
    if n_best == 1:  # a long text has many sentences
        return [tuple(min(hypotheses, key=lambda it: (not it.finished, -it.score)) for hypotheses in sentences)]
    best: list[tuple[Hypothesis, ...]] = [()]
    for hypotheses in sentences:
        longer = [(*before, hypothesis) for before in best for hypothesis in hypotheses]
        # A higher score of a part gives a higher sum, so a dropped beginning cannot lead to a better combination.
        best = sorted(longer, key=lambda them: (sum(not it.finished for it in them), -fsum(it.score for it in them)))
        best = best[:n_best]
    return best
