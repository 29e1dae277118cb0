"""Rows of the paper as runs: found by name, sharing what they can, each for itself where one fails."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest.mock import MagicMock

import pytest
from small_pipeline import ForkLauncher, run_small

from flows.runner.find_run import find_run
from flows.runner.outcome import Outcome, StageFailed
from flows.runner.paper import PaperRequest
from flows.runner.request import ResolvedRun, RunPlan, RunRequest, make_plan
from flows.runs import DEMO, PAPER_BASE, RUNS, WMT14_SAMPLE_ENDE
from flows.runs.overrides import override
from flows.runs.paper_rows import PAPER, PAPER_RUNS, corpora, paper_row_of, parse_rows, row_run, row_run_name, rows_on
from infra.errors import BadConfiguration, BadData
from infra.launch.job import JobSpec
from infra.processes import signals
from infra.tracking.client import mlflow_client
from infra.tracking.mlflow_runs import PARENT
from model.config import count_parameters
from tasks.engine import jobs
from tasks.engine.planner import StageResult

SHARED = ("download", "prepare_sets", "clean", "learn_bpe", "shard")
FEW = ("training.updates=8", "training.checkpoint_every=4", "training.dev_every=8", "averaging.count=1")
SMALL = PaperRequest("C2,D0", "small", 64, overrides=FEW)


class FailingLauncher(ForkLauncher):
    """Fails every training without dropout."""

    def run(self, job: JobSpec, on_poll: Callable[[], None]) -> None:
        if job.module == "model.train" and job.config["model"]["p_drop"] == 0:
            raise BadData("lightning")
        super().run(job, on_poll)


def keys(row: ResolvedRun, stages: tuple[str, ...]) -> set[str]:
    return {each.key for each in make_plan(row).outcome.rows if each.stage in stages}


def test_a_row_is_found_by_its_name_alone() -> None:
    cells = [(row, corpus, scale) for corpus in corpora() for scale in (1, 8, 64) for row in rows_on(corpus)]
    runs = [(*cell, row_run(*cell)) for cell in cells]
    names = [run.name for *_, run in runs]
    assert len(set(names)) == len(names)
    for row, corpus, scale, run in runs:
        assert run.name == row_run_name(row, corpus, scale)
        assert find_run(run.name) == run
        (described,) = paper_row_of(run)
        assert (described.row, described.corpus, described.scale) == (row, corpus, scale)
        assert described.exact is (corpus == PAPER and scale == 1)
        assert described.set_name in [each.name for each in run.sets]
    assert {row for row, corpus, *_ in runs if corpus == PAPER} == set(PAPER_RUNS)


def test_a_row_on_another_corpus_is_the_paper_s_model_on_that_corpus_s_text() -> None:
    run = row_run("A32", "wmt14-sample-ende", 8)
    assert (run.corpus, run.sets, run.vocabulary) == (
        WMT14_SAMPLE_ENDE.corpus,
        WMT14_SAMPLE_ENDE.sets,
        WMT14_SAMPLE_ENDE.vocabulary,
    )
    shape = run.model
    assert (shape.layers, shape.d_model, shape.d_ff, shape.heads, shape.d_k, shape.d_v) == (6, 64, 256, 32, 2, 2)
    assert row_run("Dls2", "demo", 8).training.label_smoothing == 0.2
    assert row_run("D0", "demo", 8).model.p_drop == 0
    assert row_run("base", "demo", 8).training.updates < DEMO.training.updates


def test_a_run_that_is_no_row_has_none_and_a_changed_row_is_not_the_paper_s() -> None:
    assert paper_row_of(DEMO) == paper_row_of(WMT14_SAMPLE_ENDE) == ()
    limits = ("profile=paper", "expect=train.loss <= 4", "min_champion_bleu=1")
    settings = ((), ("profile=paper",), limits, ("profile=paper", "training.updates=90000"))
    (cleaned,), (own,), (limited,), (changed,) = (paper_row_of(override(PAPER_BASE, words)) for words in settings)
    assert (cleaned.row, cleaned.exact) == ("table2-base", False)
    assert "corpus wmt14-ende, cleaned text" in cleaned.conditions
    assert (own.row, own.exact, own.conditions) == ("table2-base", True, "")
    assert (limited.exact, limited.conditions) == (True, "")
    assert (changed.row, changed.exact) == ("table2-base", False)
    assert "Not the paper's setting" in changed.conditions
    (row,) = paper_row_of(override(row_run("base", "demo", 8), ("evaluate=dev",)))
    assert row.set_name == "dev", "the report has no other score"


def test_a_scale_that_a_row_cannot_have_is_refused() -> None:
    with pytest.raises(BadConfiguration, match=r"--scale is 100, which row torch-beam cannot have: model\.d_k"):
        row_run("torch-beam", "demo", 100)


def test_a_row_keeps_its_name() -> None:
    with pytest.raises(BadConfiguration, match="--set name=mine: a row is found by its name"):
        PaperRequest("table2-base", corpus="demo", overrides=("name=mine",)).resolve()


def test_the_runs_of_wmt14_clean_and_the_rows_do_not() -> None:
    for name in ("wmt14-ende-base", "wmt14-ende-A1", "wmt14-enfr-big"):
        run = RUNS[name]
        assert {"distinct", "length", "length_ratio", "not_in"} <= {rule.name for rule in run.filters.rules}
        assert run.filters.exclude == ("newstest2013", "newstest2014", "newstest2014_full")
    for run in PAPER_RUNS.values():
        assert [rule.name for rule in run.filters.rules] == ["empty"]
        assert run.filters == override(run, ("profile=paper",)).filters
    text = {name: keys(RunRequest(name).resolve(), ("clean",)) for name in ("wmt14-ende-base", "wmt14-ende-A1")}
    assert text["wmt14-ende-base"] == text["wmt14-ende-A1"], "cleaned once for all of them"


@pytest.mark.parametrize("corpus", ["demo", PAPER])
def test_rows_share_all_that_comes_before_training(corpus: str) -> None:
    rows = PaperRequest("base,A1,C2,D0,E,table2-base", corpus).resolve().group.members
    last, *others, mean = rows.values()
    assert len({frozenset(keys(row, SHARED)) for row in (last, *others)}) == 1
    assert len({frozenset(keys(row, ("train",))) for row in (last, *others)}) == len(rows) - 1
    assert keys(last, ("train",)) == keys(mean, ("train",)), "the mean is of the same training as the last checkpoint"
    assert keys(last, ("average",)) != keys(mean, ("average",))


@pytest.mark.parametrize("corpus", ["demo", PAPER])
def test_pre_and_post_ln_differ_in_the_place_of_the_norms_alone(corpus: str) -> None:
    rows = {row: resolved.run for row, resolved in PaperRequest("norms", corpus).resolve().group.members.items()}
    assert {row: run.model.norm for row, run in rows.items()} == {"post-ln": "post", "pre-ln": "pre"}
    post, pre = rows["post-ln"], rows["pre-ln"]
    assert replace(pre, name=post.name, about=post.about, model=replace(pre.model, norm="post")) == post
    assert post.model.layers == 6


@pytest.mark.parametrize("corpus", ["demo", PAPER])
def test_own_and_torch_s_layers_are_trained_once_for_both_searches(corpus: str) -> None:
    rows = PaperRequest("searches", corpus).resolve().group.members
    found = {row: (resolved.run.model.attention, resolved.run.decoding.beam) for row, resolved in rows.items()}
    beam = rows["own-beam"].run.decoding.beam
    assert beam > 1
    assert found == {
        "own-greedy": ("own", 1),
        "own-beam": ("own", beam),
        "torch-greedy": ("torch", 1),
        "torch-beam": ("torch", beam),
    }
    for layers in ("own", "torch"):
        assert keys(rows[f"{layers}-greedy"], ("train",)) == keys(rows[f"{layers}-beam"], ("train",))
    assert keys(rows["own-beam"], ("train",)) != keys(rows["torch-beam"], ("train",))
    assert parse_rows("norms,base", corpus) == ("post-ln", "pre-ln", "base")


def test_one_row_that_fails_leaves_the_others_whole_and_is_rerun_alone(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    with monkeypatch.context() as patch:
        patch.setitem(jobs.LAUNCHERS, "local", FailingLauncher)
        failed = SMALL.resolve().run(run_small, said.append)
    assert failed.failures == {"D0": "train failed: lightning"}
    assert "row D0: train failed: lightning" in said
    whole, broken = failed.comparisons()
    assert {"bleu_paper", "bleu", "perplexity", "target_tokens", "hours"} <= whole.ours.keys()
    assert (broken.failure, "bleu" in broken.ours) == ("train failed: lightning", False)
    assert "- D0: train failed: lightning" in SMALL.page(small).with_suffix(".md").read_text()
    assert SMALL.resolve().group.has_work

    again = SMALL.resolve().run(run_small, said.append)
    states = {row: {(r.stage, r.state) for r in outcome.rows} for row, outcome in again.outcomes.items()}
    assert {state for _, state in states["C2"]} == {"cached"}
    assert {stage for stage, state in states["D0"] if state == "cached"} == set(SHARED)
    assert not again.failure
    for line, outcome in zip(again.comparisons(), again.outcomes.values(), strict=True):
        (facts,) = (row.facts for row in outcome.rows if row.stage == "train")
        size = line.row.vocabulary
        assert facts["parameters"] == count_parameters(line.row.model, size, size) == line.ours["parameters"]
        assert (line.ours["device"], line.ours["ranks"]) == ("cpu", 1)
        (report,) = (Path(row.path) / "report.html" for row in outcome.rows if row.stage == "report")
        assert f"Table 3, row {line.row.row}." in report.read_text()
        assert "corpus small, widths divided by 64" in report.read_text()
        assert line.differences == {}

    assert not SMALL.resolve().group.has_work
    there = SMALL.resolve().run(run_small, said.append)
    assert there.as_json()["table"] == [
        {**row, "stages": [{**stage, "state": "cached"} for stage in row["stages"]]} for row in again.as_json()["table"]
    ]
    client = mlflow_client(SMALL.resolve().group.site.tracking)
    experiment = client.get_experiment_by_name("paper-small-scale64")
    runs = client.search_runs([experiment.experiment_id])
    (parent,) = [run for run in runs if PARENT not in run.data.tags]
    rows = [run for run in runs if run.data.tags.get(PARENT) == parent.info.run_id]
    assert sorted(run.info.run_name.split(" · ")[0] for run in rows) == ["row C2", "row D0", "row D0"]
    assert {"C2.dev.bleu", "D0.dev.bleu"} <= set(parent.data.metrics)
    assert (parent.info.run_name, parent.info.status) == (SMALL.title, "FINISHED")


def test_each_call_keeps_its_page(tmp_path: Path) -> None:
    requests = [PaperRequest(rows, "demo", scale, 1, overrides) for rows, scale, overrides in (
        ("base, C2", 0, ()), ("norms", 0, ()), ("norms", 4, ()), ("norms", 0, ("training.updates=8",)),
        ("norms", 0, ("training.updates=9",)),
    )]  # fmt: skip
    assert requests[0].page(tmp_path) == tmp_path / "runs" / "paper-demo-scale8" / "base-C2" / "paper.html"
    groups = [PaperRequest("base", "demo", overrides=each).resolve().group.name for each in ((), FEW, FEW[:1])]
    assert groups[0] == "paper-demo-scale8"
    assert len(set(groups)) == 3, "scores of other settings have a parent of their own in MLflow"
    assert len({each.page(tmp_path) for each in requests}) == len(requests)
    again = PaperRequest("norms", "demo", 8, 2, ("training.updates=7", "training.updates=8"))
    assert again.page(tmp_path) == requests[3].page(tmp_path), "the same rows, widths and settings"


def work(row: RunPlan) -> Outcome:
    return Outcome(row.resolved.run.name, [StageResult("train", "", "k", "completed")])


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRO_ROOT", f"{tmp_path}")
    monkeypatch.setattr("flows.runner.group.Tracker", MagicMock())


@pytest.mark.usefixtures("root")
def test_a_failure_of_any_kind_stays_with_its_row() -> None:
    def run_row(row: RunPlan) -> Outcome:
        if "A1" in row.resolved.run.name:
            raise OSError("the disk is gone")
        if "C2" in row.resolved.run.name:
            raise StageFailed(Outcome(row.resolved.run.name, failure="score failed: no words"))
        return work(row)

    for at_once in (1, 2):
        request = PaperRequest("base,A1,C2", "demo", at_once=at_once)
        found = request.resolve().run(run_row, lambda _: None)
        assert found.failures == {"A1": "OSError: the disk is gone", "C2": "score failed: no words"}


@pytest.mark.usefixtures("root")
def test_an_interrupt_stops_running_rows_and_starts_no_other() -> None:
    started, ended = [], []
    both = threading.Barrier(2)

    def run_row(row: RunPlan) -> Outcome:
        started.append(row.resolved.run.name)
        both.wait(20)
        if row.resolved.run.name == "demo-paper-base-scale8":
            raise KeyboardInterrupt
        deadline = time.monotonic() + 20
        try:
            while time.monotonic() < deadline:
                signals.check()
                time.sleep(0.01)
        except SystemExit:
            ended.append(row.resolved.run.name)
            raise
        return work(row)

    with pytest.raises((KeyboardInterrupt, SystemExit)):  # the row's own, or the signal that the others received
        PaperRequest("base,A1,C2,D0", "demo", at_once=2).resolve().run(run_row, lambda _: None)
    assert sorted(started) == ["demo-paper-A1-scale8", "demo-paper-base-scale8"]
    assert ended == ["demo-paper-A1-scale8"]
