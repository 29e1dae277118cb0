"""Tests whether two runs differ, from the scores of several seeds of each on one set (docs/judging.md).

Seeds count by Student's t on the means of the groups (Welch 1947), sentences by the bootstrap, which draws the same
sentences for all trainings. The covariance of different trainings is the effect of the sentences on all of them; the
effect on one training alone is in the variance of its group already.

If both runs score the same trainings, for example with another search, the seeds are paired.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

from tasks.evaluation.translation_metrics import CONFIDENCE_LEVEL, Counts, Measured
from tasks.lazy_libraries import np

POWER = 0.8
TAIL = (1 - CONFIDENCE_LEVEL) / 2
LARGEST_FREEDOM = 1_000.0
"""Beyond it Student's t is the normal distribution to three digits."""
MOST_OF_SEEDS = 2
"""The test uses at most this multiple of the seeds' degrees of freedom. Welch's estimate is far too large if a few
seeds happen to be close: without this bound the test called 6.6 % of equal runs with two seeds each different."""
GRID = 20_000
SPENT = 2
"""After a share s of the budget, s ** SPENT of the error is spent: little early, most at the end."""
TRIALS = 200_000
Verdict = Literal["better", "worse", "undecided", "no such difference"]


@dataclass(frozen=True)
class SeedScores:
    """One score of one set for each seed: ``scores`` (seeds,) and ``drawn`` (seeds, resamples), of resampled sets."""

    scores: Counts
    drawn: Counts

    @staticmethod
    def of(seeds: Sequence[Measured]) -> SeedScores:
        return SeedScores(np.array([each.score for each in seeds]), np.array([each.resampled for each in seeds]))


@dataclass(frozen=True)
class GroupDifference:
    """How the second group's mean differs from the first one's, with an interval."""

    effect: float
    low: float
    high: float
    detectable: float
    """The smallest true difference that is detected with probability POWER at this error."""

    @property
    def interval(self) -> str:
        return f"{self.low:+.2f} to {self.high:+.2f}"

    def verdict(self, smallest: float = 0.0) -> Verdict:
        """``better``: the second group is. A difference below ``smallest`` counts as none."""
        if self.low > 0:
            return "better"
        if self.high < 0:
            return "worse"
        return "no such difference" if max(-self.low, self.high) < smallest else "undecided"


def compare_groups(a: SeedScores, b: SeedScores, tail: float = TAIL, *, paired: bool = False) -> GroupDifference:
    """The difference of ``b`` from ``a``; the interval leaves out ``tail`` on each side.

    ``paired``: both score the same trainings, seed by seed. A group of one seed stands for this model alone.
    """
    varying = [b.scores - a.scores] if paired else [a.scores, b.scores]
    varying = [scores for scores in varying if len(scores) > 1]
    between = [scores.var(ddof=1) / len(scores) for scores in varying]
    sentences = _sentence_variance(a.drawn, b.drawn, paired)
    variance = float(sum(between) + sentences)
    squares = sum(part**2 / (len(scores) - 1) for part, scores in zip(between, varying, strict=True))
    of_seeds = sum(len(scores) - 1 for scores in varying)
    freedom = min(variance**2 / squares, MOST_OF_SEEDS * of_seeds) if squares else LARGEST_FREEDOM
    effect = float(b.scores.mean() - a.scores.mean())
    error = math.sqrt(variance)
    reach = student_quantile(1 - tail, freedom)
    power = student_quantile(POWER, freedom)
    return GroupDifference(effect, effect - reach * error, effect + reach * error, (reach + power) * error)


def _sentence_variance(a: Counts, b: Counts, paired: bool) -> float:
    """The variance of the difference of two runs over sentences, without the part of single trainings."""
    covariance = np.cov(np.concatenate([a, b]))
    across = covariance[: len(a), len(a) :]
    shared = _of_different(across) if paired else across.mean()
    own = _of_different(covariance[: len(a), : len(a)]) + _of_different(covariance[len(a) :, len(a) :])
    return float(max(0.0, own - 2 * shared))


def _of_different(covariance: Counts) -> float:
    """The mean covariance of different seeds; for one seed its variance."""
    count = len(covariance)
    if count == 1:
        return float(covariance[0, 0])
    return float((covariance.sum() - np.trace(covariance)) / (count * (count - 1)))


def student_quantile(share: float, freedom: float) -> float:
    """The value that Student's t stays below with probability ``share``, from 0.5 on; ``freedom`` need not be whole.

    t is √freedom · tan(angle), and the angle has the density cos(angle)^(freedom - 1).
    """
    freedom = min(max(freedom, 1.0), LARGEST_FREEDOM)
    angles = np.linspace(0, math.pi / 2, GRID + 1)
    density = np.cos(angles[:-1] + angles[1] / 2) ** (freedom - 1)
    below = np.concatenate([[0.0], np.cumsum(density)])
    angle = np.interp(2 * share - 1, below / below[-1], angles)
    return float(math.sqrt(freedom) * np.tan(angle))


@cache
def sequential_tails(budget: int, *, paired: bool = False) -> tuple[float, ...]:
    """The tails of the intervals after 2, 3, … ``budget`` seeds of each run: 5 % that any misses the true difference.

    A group-sequential test (Jennison and Turnbull 1989) that spends its error by ``SPENT``. The tails come from
    simulated normal scores of two equal runs, or from ``paired`` differences.
    """
    rng = np.random.default_rng(budget)
    signs = np.array([1.0] if paired else [1.0, -1.0])
    groups = len(signs)
    sums = rng.standard_normal((groups, TRIALS))
    squares = sums**2
    going = np.ones(TRIALS, dtype=bool)
    tails = []
    for seeds in range(2, budget + 1):
        drawn = rng.standard_normal((groups, TRIALS))
        sums += drawn
        squares += drawn**2
        deviations = (squares - sums**2 / seeds).sum(axis=0) / (seeds - 1)
        reached = np.abs(signs @ sums) / np.sqrt(seeds * deviations)
        spent = 2 * TAIL * ((seeds - 1) / (budget - 1)) ** SPENT
        left = round(TRIALS * spent) - (TRIALS - int(going.sum()))
        limit = np.sort(reached[going])[-max(left, 1)]
        tails.append(float(np.mean(reached >= limit)) / 2)
        going &= reached < limit
    return tuple(tails)
