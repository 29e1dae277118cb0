"""The rows of the paper in MLflow: one experiment, one run above them, which a later call goes on with."""

from pathlib import Path

import pytest

from flows.runner.outcome import Outcome
from flows.runner.paper import PaperRequest, PaperResults, ResolvedPaper
from flows.runner.paper_group import run_group
from infra.tracking.client import mlflow_client
from infra.tracking.tracker import PARENT, Tracker
from tasks.engine.planner import StageResult


def test_rows_are_runs_below_one_that_has_their_scores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRO_ROOT", f"{tmp_path}")
    resolved = PaperRequest("base,A1", "demo", 8).resolve()
    for bleu, failure in ((30.0, "train failed"), (31.0, "")):

        def run_all(group: ResolvedPaper, bleu: float = bleu, failure: str = failure) -> PaperResults:
            each = group.rows["A1"]
            tracker = Tracker(each.site.tracking, tmp_path / "mlflow-artifacts")
            tracker.start(each.experiment, each.title, {PARENT: each.parent}, {})
            tracker.finish("FINISHED")
            scored = [StageResult("score", "dev", "k", "completed", facts={"bleu": bleu, "signature": "tok:13a"})]
            outcomes = {"base": Outcome("base", [], failure), "A1": Outcome("A1", scored)}
            return PaperResults(resolved, outcomes)

        run_group(resolved, run_all)
    client = mlflow_client(resolved.rows["base"].site.tracking)
    experiment = client.get_experiment_by_name("paper-demo-scale8")
    runs = client.search_runs([experiment.experiment_id])
    (parent,) = [run for run in runs if PARENT not in run.data.tags]
    assert {run.data.tags[PARENT] for run in runs if run is not parent} == {parent.info.run_id}
    assert [run.info.run_name for run in runs if run is not parent] == ["row A1"] * 2
    assert parent.data.metrics == {"A1.dev.bleu": 31.0}
    assert parent.data.tags["mlflow.note.content"].endswith("\n| A1.dev | 31.00 |")
    assert (parent.info.run_name, parent.info.status) == ("demo, widths divided by 8", "FINISHED")

    def broken(_: ResolvedPaper) -> PaperResults:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        run_group(resolved, broken)
    assert client.get_run(parent.info.run_id).info.status == "FAILED"
