"""A run's field ``expect``: a breach fails the run, also one that is cached; it changes no key."""

from dataclasses import replace
from pathlib import Path

import pytest
from small_pipeline import run_small

from flows.runner.outcome import StageFailed, cached_outcome
from flows.runner.recorded_runs import read_runs
from flows.runner.records import FINISHED
from flows.runner.request import RunRequest, make_plan, plan
from flows.runner.run import RunRecord
from flows.runs import RUNS
from flows.views.stage_words import why
from infra.errors import BadConfiguration, BadData
from infra.site import Site
from infra.tracking.client import mlflow_client
from tasks.engine.limits import Limits


def request(expect: str) -> RunRequest:
    return RunRequest("small", overrides=(f"expect={expect}",))


def test_limits_change_no_key_and_name_what_the_run_has(mirror: Path) -> None:
    keys = [row.key for row in plan(RunRequest("small")).rows]
    assert [row.key for row in plan(request("score.dev.bleu >= 2,warn clean.pairs >= 3")).rows] == keys
    with pytest.raises(BadConfiguration, match="score dvv.*score dev"):
        plan(request("score.dvv.bleu >= 2"))


def test_a_cached_run_that_breaks_a_limit_fails_until_the_limit_is_changed(small: Path) -> None:
    broken = request("score.dev.bleu >= 101")
    planned = plan(broken)
    assert cached_outcome(planned) is None
    (row,) = [row for row in planned.rows if row.is_refused]
    assert (row.stage, row.item, row.state) == ("score", "dev", "cached")
    with pytest.raises(StageFailed, match="score dev failed: score dev has bleu .*, expected is bleu >= 101; its art"):
        run_small(broken)
    client = mlflow_client(Site.named().tracking)
    experiment = client.get_experiment_by_name("small")
    (failed,) = client.search_runs([experiment.experiment_id], "attributes.status = 'FAILED'")
    note = failed.data.tags["mlflow.note.content"].splitlines()[0]
    assert note.startswith("score dev failed: score dev has bleu "), "MLflow says first why the run failed"
    assert "expected is bleu \\>= 101" in note
    labels = {row.item: row.label for row in plan(request("score.dev.bleu >= 101")).rows if row.stage == "score"}
    assert labels["dev"] == "cached (the run fails here)" != labels["test"]
    done = cached_outcome(plan(request("score.dev.bleu <= 101,warn score.test.chrf >= 101")))
    assert done
    assert [row.item for row in done.rows if "expected is chrf >= 101" in why(row)] == ["test"]


def test_a_run_that_fulfils_its_changed_limit_is_finished(small: Path) -> None:
    planned = make_plan(RunRequest("small").resolve())
    RunRecord(planned, lambda _: None).write(planned.outcome.rows, "FAILED")
    again = make_plan(RunRequest("small").resolve())
    RunRecord(again, lambda _: None).conclude(again.outcome)
    assert next(read_runs(planned.store.root, "small")).outcome == FINISHED


def test_a_fact_that_no_artifact_of_the_stage_has_is_refused_before_anything_runs(small: Path) -> None:
    again = request("score.dev.bleuu >= 2")
    with pytest.raises(BadConfiguration, match="expect limits 'score dev bleuu', allowed of score is .*bleu, "):
        plan(replace(again, overrides=(*again.overrides, "training.seed=9")))
    assert plan(request("train.best_update >= 2")), "a fact that other settings make"


def test_the_limit_of_rejected_pairs_holds_for_cached_text(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.stages.clean.FEWEST_JUDGED", 100)
    assert cached_outcome(plan(RunRequest("small")))
    with pytest.raises(
        BadData, match=r"of 600 pairs .* allowed by filters.max_rejected are 0.1%.*nothing began: no rec"
    ):
        plan(RunRequest("small", overrides=("filters.max_rejected=0.001",)))


def test_built_in_runs_only_warn() -> None:
    limits = [limit for run in RUNS.values() for limit in Limits.parse(run.expect).limits]
    assert {limit.fact for limit in limits} >= {"rejected_share", "length_ratio", "dev_perplexity"}
    assert all(limit.warns for limit in limits)
