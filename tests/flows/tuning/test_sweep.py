"""A sweep: its space, trials that share stages, a cut-off sweep that continues, scores of the dev set alone."""

import json
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from small_pipeline import run_small

from flows.runner.outcome import Outcome, StageFailed
from flows.runner.recorded_runs import read_history
from flows.runner.request import ResolvedRun, RunPlan
from flows.runs import DEMO, RUNS
from flows.tuning.search_space import parse_space
from flows.tuning.study import JOURNAL, SweepStudy
from flows.tuning.sweep import SweepRequest
from infra.errors import BadConfiguration
from infra.processes.locks import try_file_lock
from infra.site import open_store
from infra.tracking.client import mlflow_client
from tasks.engine.planner import StageResult

SHORT = ("training.checkpoint_every=4", "training.updates=8", "training.dev_every=4")
SPACE = ("training.factor=1e-4..1e-2:log",)


def scored(value: Callable[[ResolvedRun], float]) -> Callable[[RunPlan], Outcome]:
    """A stand-in for running a trial: its dev perplexity is ``value`` of its run."""
    return lambda run: Outcome(
        "small", [StageResult("train", "", "k", "completed", facts={"dev_perplexity": value(run.resolved)})]
    )


def request(**changes: Any) -> SweepRequest:
    return replace(SweepRequest("small", spaces=SPACE, trials=3, on="dev.perplexity"), **changes)


def test_trials_share_stages_and_translate_the_dev_set_alone(small: Path) -> None:
    made: list[list[str]] = []

    def run(trial: RunPlan) -> Outcome:
        outcome = run_small(trial)
        made.append([f"{row.stage} {row.item}".strip() for row in outcome.rows if row.state == "completed"])
        return outcome

    asked = SweepRequest("small", spaces=SPACE, trials=2, on="dev.chrf", overrides=SHORT)
    found = asked.resolve().run(run, lambda _: None)
    assert made == [["train", "average", "translate dev", "score dev"]] * 2
    assert found.best
    assert found.best.value == max(row.value or 0 for row in found.rows)
    assert found.command == f"repro run small {' '.join(f'--set {each}' for each in (*SHORT, *found.best.settings))}"
    elsewhere = replace(asked, overrides=("filters.rules=Empty, Length",), site="gpu")
    command = replace(found, resolved=replace(found.resolved, request=elsewhere)).command
    assert shlex.split(command)[3:5] == ["--set", "filters.rules=Empty, Length"]
    assert command.endswith(" --site gpu")
    folder = asked.resolve().folder
    assert json.loads((folder / "sweep.json").read_text())["table"][1]["settings"] == list(found.rows[1].settings)
    assert (folder / "sweep.png").read_bytes().startswith(b"\x89PNG")
    client: Any = mlflow_client(asked.resolve().base.site.tracking)
    (experiment,) = client.search_experiments(filter_string="name = 'small'")
    runs = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}
    group = runs[f"sweep {asked.resolve().name}"]
    trials = [run for name, run in runs.items() if name.startswith("trial ")]
    assert [run.data.tags["mlflow.parentRunId"] for run in trials] == [group.info.run_id] * 2
    history = read_history(open_store(asked.resolve().base.site))
    assert sorted(run.part for run in history if run.group) == [
        f"trial {number} of sweep {asked.resolve().name}" for number in (0, 1)
    ]
    assert group.info.status == "FINISHED"
    assert group.data.metrics["best"] == pytest.approx(found.best.value)
    note = group.data.tags["mlflow.note.content"]
    assert f"`{found.command}`" in note
    rows = [f"| {row.number} | {row.value:.2f} | {row.settings[0]} |" for row in found.ranked()]
    assert note.endswith("\n".join(rows))


def test_an_interrupted_trial_is_repeated_with_its_settings(mirror: Path) -> None:
    tried: list[float] = []

    def interrupted(run: RunPlan) -> Outcome:
        tried.append(run.resolved.run.training.factor)
        if len(tried) == 2:
            raise KeyboardInterrupt
        return scored(lambda run: 1e3 * run.run.training.factor)(run)

    with pytest.raises((KeyboardInterrupt, SystemExit)):
        request().resolve().run(interrupted, lambda _: None)
    found = request().resolve().run(interrupted, lambda _: None)
    assert len(tried) == 4, "one trial was done, one is repeated, one is new"
    assert tried[2] == tried[1]
    assert len(set(tried)) == 3, "a new sitting does not repeat the first one's proposals"
    assert [row.state for row in found.rows] == ["complete"] * 3
    assert request().resolve().run(interrupted, lambda _: None).rows == found.rows, "nothing is left to do"


def test_a_trial_that_fails_does_not_stop_the_others(mirror: Path) -> None:
    def run(trial: RunPlan) -> Outcome:
        if trial.resolved.run.model.p_drop == 0.1:
            raise StageFailed(Outcome("small", failure="train failed: lightning"))
        return scored(lambda run: 10 + run.run.model.p_drop)(trial)

    asked = request(spaces=("model.p_drop=0.1,0.2", "training.warmup=1..9"), trials=6)
    found = asked.resolve().run(run, lambda _: None)
    assert {(row.state, row.failure) for row in found.rows} == {("complete", ""), ("failed", "train failed: lightning")}


def test_the_same_command_tries_failed_trials_again(mirror: Path) -> None:
    """Also where all of them failed, for example since no deployment of the pool was there yet."""
    tried: list[float] = []
    broken = [True]

    def run(trial: RunPlan) -> Outcome:
        tried.append(trial.resolved.run.training.factor)
        if broken[0]:
            raise StageFailed(Outcome("small", failure="train failed: no such pool"))
        return scored(lambda run: 1e3 * run.run.training.factor)(trial)

    for _ in range(2):
        failed = request().resolve().run(run, lambda _: None)
        assert failed.failure == "none of 3 trials has a score: train failed: no such pool"
    broken[0] = False
    found = request().resolve().run(run, lambda _: None)
    assert tried[:3] == tried[3:6] == tried[6:], "the same settings, once in each sitting"
    assert [row.state for row in found.rows] == ["complete"] * 3
    assert request().resolve().run(run, lambda _: None).rows == found.rows
    assert len(tried) == 9, "nothing is left to do"


def test_the_order_of_the_options_changes_nothing(mirror: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[dict[str, list[Any]]] = []

    def draw(on: str, scores: Any, maximize: bool, settings: Any, theme: Any) -> bytes:
        drawn.append({path: list(each.values) for path, each in settings.items()})
        assert settings["model.p_drop"].choices == ["0.1", "0.2"]
        return b""

    monkeypatch.setattr("tasks.evaluation.plots.sweep", draw)
    spaces = ("training.factor=1e-4..1e-2:log", "model.p_drop=0.1,0.2")
    for order in (spaces, spaces[::-1]):
        found = request(spaces=order).resolve().run(scored(lambda run: 1.0), lambda _: None)
        assert [path.name for path in found.files] == ["sweep.json", "sweep.png"]
    assert drawn[0] == drawn[1]
    assert set(drawn[0]["model.p_drop"]) <= {"0.1", "0.2"}


def test_every_value_of_a_list_is_tried(mirror: Path) -> None:
    asked = request(spaces=("model.p_drop=0.1,0.2,0.3", "training.warmup=4,8"), trials=2)
    few = asked.resolve().run(scored(lambda run: 1.0), lambda _: None)
    found = replace(asked, trials=9).resolve().run(scored(lambda run: 1.0), lambda _: None)
    assert found.rows[:2] == few.rows
    assert len({row.settings for row in found.rows}) == len(found.rows) == 6, "none is tried twice"


def test_columns_of_a_field_below_another_are_its_own(mirror: Path) -> None:
    asked = request(spaces=("filters.rules=+Identical,-Identical", "filters.rules.Length.max=100..150"), on="dev.chrf")
    assert list(asked.resolve().space) == ["filters.rules", "filters.rules.Length.max"]


def test_perplexity_chooses_neither_what_acts_after_the_training_nor_between_vocabularies(mirror: Path) -> None:
    for space in ("averaging.count=1..4", "decoding.beam=1,4", "vocabulary.size=300,400", "augment.caps=0,0.2"):
        with pytest.raises(BadConfiguration, match=f"allowed is dev.bleu or dev.chrf: {space.partition('=')[0]}"):
            request(spaces=(*SPACE, space)).resolve()


def test_the_value_of_a_trial_is_the_headline_that_all_trials_have_and_never_of_a_teacher(mirror: Path) -> None:
    def value_of(asked: SweepRequest) -> float:
        card = {"bleu": 4.0, "bleu_lc": 40.0, "chrf": 50.0}
        outcome = Outcome("small", [StageResult("score", "dev", "k", "completed", facts=card)])
        return asked.resolve().value_of(outcome)

    lower = request(on="dev.bleu", overrides=("vocabulary.lowercase=true",))
    assert (lower.resolve().measure, value_of(lower)) == ("dev.bleu_lc", 40.0)
    assert value_of(request(on="dev.bleu")) == 4.0
    assert value_of(request(on="dev.bleu", spaces=("vocabulary.lowercase=true,false",))) == 4.0
    rows = [
        StageResult("train", item, "k", "completed", facts={"dev_perplexity": value})
        for item, value in (("teacher/seed-1", 11.0), ("", 99.0))
    ]
    assert request().resolve().value_of(Outcome("small", rows)) == 99.0


def test_a_line_that_a_kill_cut_off_is_dropped(tmp_path: Path) -> None:
    for value in (1.0, 2.0):
        study = SweepStudy(tmp_path, "minimize", {}, 2)
        trial, _ = study.ask()
        study.tell(trial, value)
        with (tmp_path / JOURNAL).open("ab") as file:
            file.write(b'{"op_code": 4, "wor')
    assert [row.value for row in SweepStudy(tmp_path, "minimize", {}, 2).rows()] == [1.0, 2.0]


def test_a_run_that_computes_something_else_has_another_sweep(mirror: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def edited(**changes: Any) -> str:
        with monkeypatch.context() as patch:
            patch.setitem(RUNS, "small", replace(before, **changes))
            return request().resolve().name

    before = RUNS["small"]
    name = request().resolve().name
    assert {edited(), edited(about="other words")} == {name}
    others = {
        edited(model=replace(before.model, p_drop=0.3)),
        edited(training=replace(before.training, seed=before.training.seed + 1)),
        edited(vocabulary=replace(before.vocabulary, size=before.vocabulary.size - 10)),
    }
    assert len(others - {name}) == 3
    request().resolve().run(scored(lambda _: 1.0), lambda _: None)
    tried: list[str] = []
    monkeypatch.setitem(RUNS, "small", replace(before, model=replace(before.model, p_drop=0.3)))
    found = request().resolve().run(scored(lambda run: tried.append(run.title) or 2.0), lambda _: None)
    assert len(tried) == 3
    assert {row.value for row in found.rows} == {2.0}, "scores of the run as it was"


def test_one_process_runs_a_sweep(mirror: Path) -> None:
    resolved = request().resolve()
    with try_file_lock(resolved.folder / "lock"), pytest.raises(BadConfiguration):
        resolved.run(scored(lambda _: 1.0), lambda _: None)


@pytest.mark.parametrize(
    ("text", "distribution"),
    [
        ("training.peak=1e-3..1e-2:log", FloatDistribution(1e-3, 1e-2, log=True)),
        ("training.warmup=50..400", IntDistribution(50, 400)),
        ("model.p_drop=0.1,0.2,0.1", CategoricalDistribution(("0.1", "0.2"))),
        ("model.norm=pre,post", CategoricalDistribution(("pre", "post"))),
        ("training.continue=demo/1,demo/2", CategoricalDistribution(("demo/1", "demo/2"))),
    ],
)
def test_a_text_becomes_a_distribution(text: str, distribution: BaseDistribution) -> None:
    assert parse_space((text,), DEMO) == {text.partition("=")[0]: distribution}


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ((), "--space is missing"),
        (("training.peak",), "not of the form"),
        (("training.peek=1..2",), "did you mean peak"),
        (("training.peak=1e-3",), "two or more values"),
        (("training.peak=2..1",), "low end below the high end"),
        (("training.peak=0..1:log",), "above 0 with :log"),
        (("training.peak=1..inf",), "a finite low end"),
        (("training.factor=-inf..1",), "a finite low end"),
        (("training.peak=1..2:square",), "the scale is 'square', allowed is log or none"),
        (("model.norm=a..b",), "allowed is"),
        (("training.warmup=1.5..3",), "whole number"),
        (("training.peak=1..2", "training.peak=1,2"), "names training.peak twice"),
        (("training.seed=1,2",), "searched by --space and fixed by --set"),
    ],
)
def test_a_wrong_space_is_one_sentence(texts: tuple[str, ...], message: str) -> None:
    with pytest.raises(BadConfiguration, match=message):
        parse_space(texts, DEMO, ("training.seed=3",))
