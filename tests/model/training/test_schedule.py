"""Tests of the learning rate at updates with known values."""

from dataclasses import replace

import pytest

from model.config import Training
from model.training.optimizer import learning_rate


def test_the_paper_s_schedule() -> None:
    paper = Training()
    assert learning_rate(paper, 512, 1) == pytest.approx(512**-0.5 * 4000**-1.5)
    assert learning_rate(paper, 512, 4_000) == pytest.approx(7.0e-4, rel=0.01)
    assert learning_rate(paper, 512, 100_000) == pytest.approx((512 * 100_000) ** -0.5)
    assert learning_rate(replace(paper, factor=2.0), 512, 9) == pytest.approx(2 * learning_rate(paper, 512, 9))
    rates = [learning_rate(paper, 512, update) for update in range(1, 10_000)]
    assert rates.index(max(rates)) == 4_000 - 1


@pytest.mark.parametrize("schedule", ["inverse_sqrt", "linear", "constant"])
def test_the_others_rise_linearly_to_their_peak(schedule: str) -> None:
    training = Training(schedule=schedule, warmup=10, peak=0.5, updates=100)
    assert [learning_rate(training, 512, update) for update in (1, 5, 10)] == pytest.approx([0.05, 0.25, 0.5])
    after = [learning_rate(training, 512, update) for update in range(10, 101)]
    assert after == sorted(after, reverse=True)


def test_after_the_peak() -> None:
    training = Training(warmup=10, peak=0.5, updates=100)
    assert learning_rate(replace(training, schedule="inverse_sqrt"), 512, 40) == pytest.approx(0.25)
    assert learning_rate(replace(training, schedule="constant"), 512, 100) == 0.5
    linear = replace(training, schedule="linear")
    assert learning_rate(linear, 512, 55) - learning_rate(linear, 512, 56) == pytest.approx(0.5 / 91)
    assert learning_rate(linear, 512, 100) == pytest.approx(0.5 / 91)
    assert learning_rate(replace(linear, updates=5), 512, 5) == pytest.approx(0.25)


def test_by_the_clock_the_rate_falls_to_0_with_the_updates_or_the_minutes() -> None:
    linear = Training(schedule="linear", warmup=10, peak=0.5, updates=100)
    clock = replace(linear, schedule="clock", minutes=2.0)
    assert learning_rate(clock, 512, 55, 10.0) == learning_rate(linear, 512, 55)
    assert [learning_rate(clock, 512, 20, seconds) for seconds in (60.0, 90.0, 130.0)] == [0.25, 0.125, 0.0]
    assert learning_rate(clock, 512, 5, 30.0) == 0.25, "the warm-up counts updates"
    assert [learning_rate(clock, 512, update, 90.0) for update in (1, 5, 10, 11)] == [0.05, 0.125, 0.125, 0.125]
    assert learning_rate(clock, 512, 5, 120.0) == 0, "also if the time is over before the warm-up"
    with pytest.raises(ValueError, match="training.minutes is 0.0, allowed is above 0 where"):
        replace(linear, schedule="clock")
