"""Interrupted runs are listed with the command that resumes them until they are resumed, and can be closed."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from dead_process import dead_process

from flows.runner import records
from flows.runner.interrupted import attempt_to_resume, close_dead_runs, forget, unfinished
from flows.runner.recorded_runs import DIED, read_header
from flows.runner.request import RunRequest
from infra.processes.identity import process_identity
from infra.site import Site
from infra.tracking.client import mlflow_client
from infra.tracking.tracker import Tracker
from tasks.engine.limits import Check, Limits

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


def record(request: RunRequest, outcome: str, hour: int, who: str = "") -> Path:
    """Write the record of a start by a process, by default one that is gone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "process_identity", lambda: who or dead_process())
        return records.write(Site.named().root, request.run, vars(request), [], outcome, NOON + timedelta(hours=hour))


def test_cut_off_is_what_was_killed_and_what_says_running_though_its_process_is_gone() -> None:
    alive = process_identity()
    record(RunRequest("demo"), "RUNNING", 0)
    tiny = RunRequest("tiny", "train", "score", ("clean", "shard"), ("a.b=1 2",), "gpu")
    record(tiny, "KILLED", 1)
    record(RunRequest("lives"), "RUNNING", 2, alive)
    record(RunRequest("elsewhere"), "RUNNING", 3, dead_process().replace("/", "x/", 1))
    record(RunRequest("failed"), "FAILED", 4)
    commands = [found.command for found in unfinished(Site.named())]
    words = "--set 'a.b=1 2' --from train --force clean --force shard --until score --site gpu"
    assert commands == [f"repro run tiny {words}", "repro run demo"]


def test_who_forces_goes_on_with_the_run_without_it_but_not_the_other_way_round() -> None:
    record(RunRequest("demo"), "KILLED", 0)
    record(RunRequest("demo", force=("train",)), "KILLED", 1)
    record(RunRequest("demo"), "FINISHED", 2)
    assert [found.command for found in unfinished(Site.named())] == ["repro run demo --force train"]


@pytest.mark.parametrize("ended", ["RUNNING", "KILLED", "FAILED", "FINISHED"])
def test_only_the_very_same_request_goes_on_and_only_if_it_did_not_finish(ended: str) -> None:
    forced = RunRequest("demo", force=("train",), overrides=("a.b=1",))
    record(forced, "KILLED", 0)
    record(forced, ended, 1)

    def found(request: RunRequest) -> bool:
        return attempt_to_resume(Site.named(), "demo", vars(request)) is not None

    assert found(forced) == (ended != "FINISHED")
    for other in (
        replace(forced, force=()),
        replace(forced, from_stage="train"),
        replace(forced, until="average"),
        replace(forced, overrides=()),
        replace(forced, site="gpu"),
    ):
        assert not found(other)


@pytest.mark.parametrize(("limit", "resumes"), [("score.dev.bleu >= 2", False), ("warn score.dev.bleu >= 2", True)])
def test_a_failed_run_is_resumed_unless_it_broke_a_limit(limit: str, resumes: bool) -> None:
    request, site = RunRequest("demo"), Site.named()
    broken = Check(Limits.parse([limit]).limits[0], 1.0)
    records.write(site.root, "demo", vars(request), [], "FAILED", NOON, checks=[broken])
    assert (attempt_to_resume(site, "demo", vars(request)) is not None) == resumes


def test_a_run_at_work_is_not_resumed_and_the_order_of_settings_does_not_matter() -> None:
    request, other = (RunRequest("demo", overrides=words) for words in (("a.b=1", "a.c=2"), ("a.c=2", "a.b=1")))
    record(request, "RUNNING", 0)
    assert attempt_to_resume(Site.named(), "demo", vars(other))
    record(other, "RUNNING", 1, process_identity())
    assert attempt_to_resume(Site.named(), "demo", vars(request)) is None
    record(other, "RUNNING", 2, dead_process().replace("/", "x/", 1))
    assert attempt_to_resume(Site.named(), "demo", vars(request)), "perhaps of a container that was restarted"


@pytest.mark.parametrize("outcome", ["FINISHED", "FAILED", "RUNNING"])
def test_whoever_went_on_with_a_run_takes_it_off_the_list(outcome: str) -> None:
    alive = process_identity()
    record(RunRequest("demo"), "RUNNING", 0)
    record(RunRequest("demo", overrides=("training.seed=2",)), "RUNNING", 1)
    record(RunRequest("demo"), outcome, 2, alive)
    (left,) = unfinished(Site.named())
    assert left.overrides == ("training.seed=2",)


def test_a_record_dated_in_the_future_is_taken_off_the_list() -> None:
    request, site = RunRequest("demo"), Site.named()
    assert records.start_time(site.root, "demo") <= datetime.now(UTC)
    century = 100 * 365 * 24
    old = record(request, "RUNNING", century)
    (old.parent / f"{old.stem}-seeds.json").write_text("{}")
    assert [found.path for found in unfinished(site)] == [old]
    started = records.start_time(site.root, "demo")
    newer = records.write(site.root, "demo", vars(request), [], "FINISHED", started)
    assert newer.stem > old.stem
    assert unfinished(site) == []
    assert attempt_to_resume(site, "demo", vars(request)) is None
    (old.parent / "99991231T235959-999999.json").write_text("{}")
    assert records.start_time(site.root, "demo") <= datetime.now(UTC), "there is no later time"


def test_closing_ends_records_and_what_mlflow_holds_to_be_running() -> None:
    site, alive = Site.named(), process_identity()
    tracker = Tracker(site.tracking, site.root.absolute() / "mlflow-artifacts")
    tracker.start("demo", "demo", {}, {})
    stage = tracker.start_stage("train", "", "k1", {})
    assert close_dead_runs(site) == 0, "nothing is recorded"
    mine = record(RunRequest("other"), "RUNNING", 0, alive)
    theirs = record(RunRequest("demo"), "RUNNING", 1)
    for run_id in (tracker.run_id, stage):
        tracker.client.set_tag(run_id, "process", dead_process())
    model = tracker.client.create_logged_model(tracker._runs.experiment_id, name="half", source_run_id=stage)
    assert close_dead_runs(site) == 1
    assert tracker.client.get_logged_model(model.model_id).status == "FAILED"
    assert close_dead_runs(site) == 0
    assert (read_header(theirs).outcome, read_header(mine).outcome) == ("KILLED", "RUNNING")
    found = mlflow_client(site.tracking)
    assert [found.get_run(run_id).info.status for run_id in (tracker.run_id, stage)] == ["KILLED"] * 2
    explained = tracker.start_stage("gap", "", "k2", {})
    tracker.client.set_tag(explained, "process", dead_process())
    assert close_dead_runs(site) == 1, "`repro gap` has no record"
    assert [each.run for each in unfinished(site)] == ["demo"], "it can still be resumed"
    forget(site, unfinished(site))
    assert unfinished(site) == []
    assert attempt_to_resume(site, "demo", vars(RunRequest("demo"))), "by the same request"
    assert read_header(theirs).failure == DIED


def test_closing_dead_runs_waits_for_mlflow(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = record(RunRequest("demo"), "RUNNING", 0)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    assert close_dead_runs(Site.named()) == 0
    assert read_header(theirs).is_open, "else its runs would stay RUNNING when MLflow is back"
