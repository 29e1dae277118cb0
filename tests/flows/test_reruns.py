"""Only stages that failed, whose artifact is lost, or that depend on a change run again."""

import importlib
import inspect
import shutil
from pathlib import Path
from typing import Any

import pytest
from small_pipeline import run_small

from flows.reproduce import STAGES
from flows.runner.outcome import Outcome, StageFailed, cached_outcome
from flows.runner.request import RunRequest, plan
from flows.views.stage_words import why
from infra.errors import BadData

OWN_STAGES = [stage for stage in STAGES if stage not in ("translate_text", "mix", "extract_best")]


def states(outcome: Outcome) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for row in outcome.rows:
        found.setdefault(row.stage, set()).add(row.state)
    return found


def break_stage(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def broken(out: Path, *args: Any, **kwargs: Any) -> dict[str, Any]:
        (out / "half").write_text("half")
        raise BadData("line 7 is torn")

    stage = getattr(importlib.import_module(f"tasks.stages.{name}"), name)
    monkeypatch.setattr(broken, "__signature__", inspect.signature(stage.body), raising=False)
    monkeypatch.setattr(stage, "body", broken)


@pytest.mark.parametrize("name", [pytest.param("clean", marks=pytest.mark.slow), "translate"])
def test_after_a_failure_only_that_stage_and_its_dependents_run(
    small: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rerun = OWN_STAGES[OWN_STAGES.index(name) :]  # each stage depends on the one before
    for stage in rerun:
        shutil.rmtree(small / stage)
    with monkeypatch.context() as patch:
        break_stage(patch, name)
        with pytest.raises(StageFailed, match=rf"^{name}.* failed: line 7 is torn$") as failed:
            run_small()
    before = states(failed.value.outcome)
    assert before.pop(name) >= {"failed"}
    assert all(state == {"cached"} for state in before.values())
    again = states(run_small())
    expected = {stage: {"completed"} if stage in rerun else {"cached"} for stage in OWN_STAGES}
    assert again == expected
    assert not list(small.glob("*/*.partial*"))


def test_a_finished_run_is_answered_from_the_store(small: Path) -> None:
    outcome = cached_outcome(plan(RunRequest("small")))
    assert outcome
    assert {row.state for row in outcome.rows} == {"cached"}
    assert set(outcome.scores) == {"dev", "test"}
    assert outcome.model_version == "small/1"
    assert cached_outcome(plan(RunRequest("small", force=("score",)))) is None
    assert cached_outcome(plan(RunRequest("small", overrides=("training.seed=2",)))) is None


def stored(root: Path) -> dict[Path, int]:
    """The files that MLflow has of stages, and when they were written."""
    return {file: file.stat().st_mtime_ns for file in (root / "mlflow-artifacts").rglob("*") if file.is_file()}


def test_a_new_setting_runs_what_depends_on_it_and_stores_nothing_of_other_stages(small: Path) -> None:
    request = RunRequest("small", overrides=("decoding.beam=1",))
    planned = {(row.stage, row.item): row for row in plan(request).rows}
    assert planned["average", ""].state == "cached"
    assert planned["translate", "dev"].state == "miss"
    assert "decoding.beam: 2 -> 1" in why(planned["translate", "dev"])
    run_small(RunRequest("small", until="clean"))
    planned = {(row.stage, row.item): row for row in plan(request).rows}
    assert "decoding.beam: 2 -> 1" in why(planned["translate", "dev"]), "the newest start has no translation"
    assert planned["score", "dev"].state == "miss"
    before = stored(small)
    outcome = states(run_small(request))
    assert outcome["average"] == {"cached"}
    assert outcome["translate"] == outcome["register"] == {"completed"}
    after = stored(small)
    assert {file: after.get(file) for file in before} == before
    names = {file.name for file in after.keys() - before.keys()}
    assert {"translations.json", "report.html"} <= names
    assert not {"rejected.json", "lengths.json", "metrics.jsonl", "checkpoints.json"} & names
