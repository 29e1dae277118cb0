"""The runs on record: attempts, failures, and what a run at work has made."""

import inspect
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from made_up_roots import record
from small_pipeline import run_small

from flows.runner.outcome import StageFailed
from flows.runner.recorded_runs import RecordedRun, read_headers, read_history, with_overrides
from flows.runner.request import RunRequest
from flows.views.terminal import TerminalDisplay
from infra.store.local import LocalStore
from tasks.engine.lookup import Miss
from tasks.engine.stage import StageCall
from tasks.stages.clean import clean

BEGAN = datetime(2026, 11, 1, tzinfo=UTC)


def test_starts_of_one_request_are_counted_until_it_finished(tmp_path: Path) -> None:
    for hours, outcome in enumerate(("FAILED", "KILLED", "FINISHED", "FINISHED")):
        record(tmp_path, "demo", BEGAN + timedelta(hours=hours), [], outcome=outcome)
    record(tmp_path, "demo", BEGAN + timedelta(hours=1, minutes=1), [], overrides=["training.updates=9"])
    record(tmp_path, "other", BEGAN + timedelta(hours=9), [])
    found = read_history(LocalStore(tmp_path), "demo")
    assert [(each.outcome, each.start_number, each.overrides) for each in found] == [
        ("FINISHED", 1, ()),
        ("FINISHED", 3, ()),
        ("FINISHED", 1, ("training.updates=9",)),
        ("KILLED", 2, ()),
        ("FAILED", 1, ()),
    ]
    assert found[2].command == "repro run demo --set training.updates=9"
    assert read_history(LocalStore(tmp_path))[0].run == "other"
    since = read_history(LocalStore(tmp_path), "demo", BEGAN + timedelta(hours=2))
    assert [each.start_number for each in since] == [1, 3], "what began before still counts"


def test_some_overrides_mean_the_starts_that_have_them_unless_one_has_no_others(tmp_path: Path) -> None:
    for hours, overrides in enumerate((["a=1", "b=2"], ["a=1"], [])):
        record(tmp_path, "demo", BEGAN + timedelta(hours=hours), [], overrides=overrides)
    starts = [*read_headers(tmp_path)]
    assert [each.overrides for each in with_overrides(starts, ["b=2"])] == [("a=1", "b=2")]
    assert [each.overrides for each in with_overrides(starts, ["a=1"])] == [("a=1",)]
    assert with_overrides(starts, []) == starts
    assert [each.overrides for each in with_overrides(starts, [""])] == [()]
    assert with_overrides([each for each in starts if each.overrides], [""]) == []


def test_a_failed_run_says_why_and_what_was_tried(
    mirror: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise OSError("the disk is gone")

    monkeypatch.setattr(fails, "__signature__", inspect.signature(clean.body), raising=False)
    monkeypatch.setattr(clean, "body", fails)
    with pytest.raises(StageFailed):
        run_small(RunRequest("small", until="clean"))
    (found,) = read_history(LocalStore(tmp_path / "repro"))
    assert found.outcome == "FAILED"
    assert found.failure == "clean failed: OSError: the disk is gone"
    assert found.stages[-1].failures == ("OSError: the disk is gone",)
    assert found.ended is not None
    assert found.ended >= found.started.replace(microsecond=0)


def test_a_run_at_work_says_what_it_made(mirror: Path, tmp_path: Path) -> None:
    seen: list[RecordedRun] = []

    class Watching(TerminalDisplay):
        def begin(self, call: StageCall, missing: Miss) -> None:
            seen.extend(read_history(LocalStore(tmp_path / "repro")))

    run_small(RunRequest("small", until="clean"), Watching)
    first, last = seen[0], seen[-1]
    assert {(first.outcome, stage.state) for stage in first.stages} == {("RUNNING", "miss")}
    assert [stage.stage for stage in last.stages if not stage.was_made] == ["clean"], "a kill leaves what was made"
    assert [stage.key for stage in last.stages] == [
        stage.key for stage in read_history(LocalStore(tmp_path / "repro"))[0].stages
    ]
