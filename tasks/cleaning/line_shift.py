"""Finds where line n of a text no longer translates line n of the other text, because a line is missing.

Lines are described by their length and by counts of characters that translations keep. The mean of the lines around is
subtracted, since neighbours in sorted texts have similar lengths. The differences on both sides are assumed to be
jointly normal. A shift is found where the log-likelihood ratio of "line n + shift" against "line n", summed over
adjacent lines, becomes large (a CUSUM test).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from tasks.lazy_libraries import np, pl

COUNTED = (r"[?？]", r"[!！]", r"[,;:，、]", r"\d", r"[\"“”„«»]", r"[()\[\]]", r"\.", r"\p{Lu}")
MOST_COUNTED = 6
MOST_SHIFT = 10
AROUND = 101
"""Number of lines in the mean that is subtracted."""
BLOCK = 500
"""Lines per block (or a few more) to measure correlation at its best shift; fewer lines correlate by chance."""
MOST_DEVIATION = 3.0
MOST_CORRELATION = 0.9
MOST_OF_A_LINE = 5.0
"""Bounds on the weight of a single line."""
FEWEST_LINES = 50
FEWEST_GAIN = 150.0
"""Least lines and log-likelihood ratio for a shift; 240 unrelated lines of Common Crawl reach 101."""


@dataclass(frozen=True)
class LineShift:
    """From ``first`` to ``last``, counted from 1, line n of the source fits line n + ``by`` of the target."""

    first: int
    last: int
    by: int


def find_line_shift(source: pl.Series, target: pl.Series) -> LineShift | None:
    """The most likely shift between two texts of equally many lines; None if they seem to correspond throughout."""
    if len(source) <= 2 * MOST_SHIFT:
        return None
    sides = _deviations(source), _deviations(target)
    correlation = _correlation(*sides)
    shifts = [by for by in range(-MOST_SHIFT, MOST_SHIFT + 1) if by]
    gain, first, last, by = max(_best_stretch(*sides, correlation, by) for by in shifts)
    return LineShift(first, last, by) if gain >= FEWEST_GAIN and last - first >= FEWEST_LINES else None


def _deviations(text: pl.Series) -> np.ndarray:
    """(descriptions, lines): differences from the lines around, in standard deviations."""
    counts = [text.str.count_matches(each).clip(upper_bound=MOST_COUNTED) for each in COUNTED]
    descriptions = [text.str.len_chars().log1p(), *counts]
    frame = pl.DataFrame({f"{n}": each.cast(pl.Float64) for n, each in enumerate(descriptions)})
    differences = frame.select(pl.all() - pl.all().rolling_mean(AROUND, min_samples=1, center=True))
    deviations = differences.select(pl.all() / (pl.all().std(ddof=0) + 1e-9))
    return deviations.to_numpy().T.clip(-MOST_DEVIATION, MOST_DEVIATION)


def _facing(source: np.ndarray, target: np.ndarray, by: int, begin: int, end: int) -> tuple[np.ndarray, np.ndarray]:
    """The source lines n from ``begin`` to ``end`` that have a target line n + ``by``, and these target lines."""
    begin = max(begin, -by)
    end = min(end, source.shape[1] - max(by, 0))
    return source[:, begin:end], target[:, begin + by : end + by]


def _correlation(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """The correlation of each description between the sides: the mean over blocks, each at its best shift."""
    best = []
    lines = source.shape[1]
    for begin, end in pairwise(np.linspace(0, lines, max(lines // BLOCK, 1) + 1, dtype=int)):
        pairs = [_facing(source, target, by, begin, end) for by in range(-MOST_SHIFT, MOST_SHIFT + 1)]
        best.append(max(((here * there).mean(1) for here, there in pairs), key=np.sum))
    mean: np.ndarray = np.mean(best, 0)
    return mean.clip(0, MOST_CORRELATION)


def _best_stretch(
    source: np.ndarray, target: np.ndarray, correlation: np.ndarray, by: int
) -> tuple[float, int, int, int]:
    """The adjacent lines with the largest log-likelihood ratio for ``by``: the ratio, first line, last line, ``by``."""
    begin = max(0, -by)
    here, shifted = _facing(source, target, by, 0, source.shape[1])
    present = target[:, begin : begin + here.shape[1]]
    terms = here * (shifted - present) - correlation[:, None] * (shifted**2 - present**2) / 2
    ratio = (correlation / (1 - correlation**2)) @ terms
    total = np.concatenate([[0.0], ratio.clip(-MOST_OF_A_LINE, MOST_OF_A_LINE).cumsum()])
    gain = total - np.minimum.accumulate(total)
    last = int(gain.argmax())
    first = int(total[: last + 1].argmin()) + 1
    return float(gain[last]), begin + first, begin + last, by
