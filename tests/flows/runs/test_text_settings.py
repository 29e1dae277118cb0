"""Settings by the amount of text, and what a budget makes of them."""

import os
import subprocess
import sys

import pytest

from flows.runner.update_time import time_of_update
from flows.runs import RUNS, Run
from flows.runs.overrides import override
from flows.runs.text_settings import OTHER_SHARE, OTHER_STAGES, UpdateTime, fitting, within
from infra.errors import BadConfiguration
from tasks.durations import seconds_of


def test_text_gets_the_settings_of_a_built_in_run_and_less_text_no_larger_model_or_longer_training() -> None:
    tiny, small, base = "multi30k-ende", "wmt14-sample-ende", "wmt14-ende-base"
    for pairs, name in ((29_000, tiny), (52_072, small), (4_500_000, base)):
        assert fitting(pairs)[0] == RUNS[name]
    amounts = [
        (run.model.layers * run.model.d_model, run.training.updates * run.training.batch_tokens)
        for run in fitting(10**9)
    ]
    assert amounts == sorted(amounts, reverse=True)
    assert [fitting(pairs)[0].name for pairs in (1, 39_999, 40_000, 2_000_000)] == [tiny, tiny, small, base]
    assert fitting(10, "base")[0].name == base
    assert {run.name for run in fitting(10**9, "tiny")} == {tiny}


def test_a_budget_lowers_updates_then_takes_a_smaller_model() -> None:
    runs = fitting(29_000)
    full = runs[0].training.updates
    whole, time = within(10 * full, runs, lambda _: UpdateTime(1.0))
    linear = ["training.schedule=linear", "training.minutes=0"]
    assert (override(whole, linear), time.seconds) == (runs[0], 1.0)
    half, _ = within(
        OTHER_STAGES / (1 - OTHER_SHARE) + full / 2 / (1 - OTHER_SHARE) + 1, runs, lambda _: UpdateTime(1.0)
    )
    assert (half.model, half.training.updates) == (runs[0].model, full // 2)
    assert half.training.checkpoint_every == runs[0].training.checkpoint_every // 2
    assert full / 2 <= 60 * half.training.minutes <= full / 2 + 1, "beside other work the clock ends it"
    smaller, _ = within(900, runs, lambda _: UpdateTime(1.0))
    assert smaller.model.layers < runs[0].model.layers
    assert smaller.training.updates <= 900
    longer, _ = within(5_700, runs, lambda run: UpdateTime(3.0 if run is runs[0] else 1.0))
    assert longer.model.layers < runs[0].model.layers
    assert runs[1].training.updates < 5_000 < longer.training.updates < full, "a smaller model uses the budget too"
    with pytest.raises(BadConfiguration, match="--budget is 2m, allowed is at least 4m"):
        within(120, runs, lambda _: UpdateTime(1.0))
    with pytest.raises(ValueError, match="training.epochs is 3, allowed is 0"):
        within(900, [override(runs[0], ["training.updates=0", "training.epochs=3"])], lambda _: UpdateTime(1.0))
    with pytest.raises(ValueError, match="training.warmup_epochs is 1"):
        within(1_200, [override(runs[0], ["training.warmup=0", "training.warmup_epochs=1"])], lambda _: UpdateTime(1.0))
    for several in (RUNS["demo-distilled"], override(runs[0], ["decoding.ensemble=1,2"])):
        with pytest.raises(ValueError, match="allowed is a run with one training"):
            within(900, [several], lambda _: UpdateTime(1.0))
    assert [seconds_of(each) for each in ("30m", "2h", "1h30m", "0.5h")] == [1_800, 7_200, 5_400, 1_800]


def test_other_work_changes_neither_what_is_refused_nor_above_a_bound_what_is_chosen() -> None:
    runs = fitting(12_000)

    def beside(slowdown: float) -> Run:
        return within(600, runs, lambda run: UpdateTime(run.training.batch_tokens / 8_000 * slowdown, slowdown))[0]

    assert beside(2.0) == beside(7.0)
    assert beside(7.0).training.minutes == 7.5
    slow = UpdateTime(9.0 * 8, slowdown=8.0)
    assert within(600, runs, lambda _: slow)[0].training.updates == 450 // 9, "only 6 beside the other work"
    with pytest.raises(BadConfiguration, match="allowed is at least 12m for this text, without other work"):
        within(600, runs, lambda _: slow._replace(seconds=10.0 * 8))


def test_an_update_is_timed_and_how_much_other_work_slows_it_down() -> None:
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})  # programs inherit it: these two share a core
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        time = time_of_update(RUNS["demo"], 10)
    finally:
        other.kill()
        other.wait()
        os.sched_setaffinity(0, cores)
    assert 0 < time.seconds < 60
    assert time.slowdown > 1.1
    strict = override(RUNS["demo"], ["training.numerics=strict"])
    assert time_of_update(strict, 10).seconds > 0, "in an environment that makes its kernels the same"
