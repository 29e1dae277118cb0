"""Groups of seeds: quantiles agree with scipy's, intervals hold their level, sentences and pairs count once."""

import numpy as np
import pytest
from scipy import stats

from tasks.evaluation import significance
from tasks.evaluation.significance import (
    GroupDifference,
    SeedScores,
    _sentence_variance,
    compare_groups,
    sequential_tails,
    student_quantile,
)


@pytest.mark.parametrize("freedom", [1.0, 1.7, 2.0, 4.0, 10.5, 300.0])
@pytest.mark.parametrize("share", [0.8, 0.975, 0.9995])
def test_student_s_t_agrees_with_scipy(share: float, freedom: float) -> None:
    assert student_quantile(share, freedom) == pytest.approx(stats.t.ppf(share, freedom), rel=1e-4)


def group(scores: list[float], *common: float) -> SeedScores:
    """Seeds whose resampled scores move with ``common`` alone."""
    drawn = np.array([[score + each for each in (*common, 0.0, 0.0)] for score in scores])
    return SeedScores(np.array(scores), drawn)


def sentence_error(a: SeedScores, b: SeedScores) -> float:
    return float(np.sqrt(_sentence_variance(a.drawn, b.drawn, paired=False)))


def test_without_sentences_the_interval_is_welch_s() -> None:
    a, b = [38.9, 39.2, 39.4], [39.9, 40.3, 40.1, 39.8]
    found = compare_groups(group(a, 1.0, -1.0), group(b, 1.0, -1.0))
    theirs = stats.ttest_ind(b, a, equal_var=False).confidence_interval()
    assert (found.low, found.high) == pytest.approx(tuple(theirs), abs=1e-4)
    assert found.verdict() == "better"
    assert compare_groups(group(b), group(a)).verdict() == "worse"


def test_what_sentences_do_to_runs_counts_and_what_they_do_to_one_training_is_in_its_seeds() -> None:
    rng = np.random.default_rng(1)
    scores = np.zeros(4)
    own = rng.normal(0, 0.5, (8, 1000))
    run = rng.normal(0, 0.3, 1000)
    a, b = SeedScores(scores, own[:4]), SeedScores(scores, own[4:])
    assert sentence_error(a, b) < 0.1
    assert sentence_error(a, SeedScores(scores, own[4:] + run)) == pytest.approx(0.3, abs=0.05)
    one = SeedScores(scores[:1], own[:1])
    assert sentence_error(one, b) == pytest.approx(0.5, abs=0.05), "one model stands for itself"


def test_two_seeds_that_happen_to_be_close_do_not_make_sentences_certain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the bound on Welch's freedom 6.6 % of equal runs are apart."""
    monkeypatch.setattr(significance, "GRID", 2_000)  # 8,000 quantiles are needed, to three digits
    rng = np.random.default_rng(3)
    scores = rng.normal(0, 0.27, (4000, 2, 2))
    scores[:, 1] += rng.normal(0, 0.134, (4000, 1))
    run = rng.normal(0, 0.134, 100)
    run *= 0.134 / run.std(ddof=1)
    pairs = [(SeedScores(a, np.zeros((2, 100))), SeedScores(b, np.tile(run, (2, 1)))) for a, b in scores]
    apart = [compare_groups(a, b).verdict() != "undecided" for a, b in pairs]
    assert np.mean(apart) == pytest.approx(0.043, abs=0.01)


def test_seeds_of_the_same_trainings_are_pairs() -> None:
    a, b = group([38.0, 39.0, 40.0]), group([38.2, 39.1, 40.2])
    assert compare_groups(a, b).verdict() == "undecided"
    found = compare_groups(a, b, paired=True)
    theirs = stats.ttest_rel(b.scores, a.scores).confidence_interval()
    assert (found.low, found.high) == pytest.approx(tuple(theirs), abs=1e-4)
    one = compare_groups(group([38.0], 1.0), group([38.2], 2.0), paired=True)
    assert one.low < 0 < one.high, "a pair of one seed is judged by its sentences alone"


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (0.1, 0.9, "better"),
        (-0.9, -0.1, "worse"),
        (-0.2, 0.2, "no such difference"),
        (-0.2, 0.4, "undecided"),
        (-0.4, 0.2, "undecided"),
        (0.1, 0.2, "better"),
    ],
)
def test_a_difference_that_is_ruled_out_is_an_answer(low: float, high: float, verdict: str) -> None:
    assert GroupDifference(0.0, low, high, 0.3).verdict(0.3) == verdict


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("budget", [2, 3, 10])
def test_looking_after_every_seed_tells_equal_runs_apart_in_a_twentieth(budget: int, groups: int) -> None:
    """And with plain 95 % intervals in more, where there are several looks. Pairs of seeds are one group."""
    rng = np.random.default_rng(7)
    scores = rng.standard_normal((4000, groups, budget))
    tails = sequential_tails(budget, paired=groups == 1)
    limits = [student_quantile(1 - tail, groups * seeds) for seeds, tail in enumerate(tails, 1)]
    plain = [student_quantile(0.975, groups * seeds) for seeds in range(1, budget)]

    def share(limits: list[float]) -> float:
        apart = np.zeros(len(scores), dtype=bool)
        for seeds, limit in enumerate(limits, 2):
            part = scores[:, :, :seeds]
            error = np.sqrt(part.var(axis=2, ddof=1).sum(axis=1) / seeds)
            apart |= np.abs(part[:, -1].mean(axis=1) - (groups - 1) * part[:, 0].mean(axis=1)) > limit * error
        return float(apart.mean())

    assert share(limits) == pytest.approx(0.05, abs=0.012)
    assert budget == 2 or share(plain) > 0.07
