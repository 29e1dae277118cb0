"""A run without work loads nothing heavy; a killed run is on record, and what it left open is closed on demand."""

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from dead_process import dead_process
from small_pipeline import write_run_file

from flows.orchestration.dispatch import close_dead_runs, dispatch
from flows.runner import records
from flows.runner.interrupted import unfinished
from flows.runner.recorded_runs import RecordedRun, read_header, read_history
from flows.runner.request import RunRequest, make_plan
from infra.errors import JobFailed
from infra.servers.environment import configure_libraries
from infra.servers.prefect_states import PROCESS_LABEL, has_abandoned_flow_runs
from infra.site import Site
from infra.store.local import LocalStore
from infra.tracking.tracker import Tracker

REPRO = [sys.executable, "-c", "from flows.cli import main; main()"]
KILLED_AT_THE_END = """
import os
from infra.tracking.tracker import Tracker
Tracker.finish = lambda self, *end: os.kill(os.getpid(), 9)
from flows.cli import main
main()
"""
KILLED_AT_THE_START = """
import os
from flows.orchestration import dispatch
dispatch._ensure_server = lambda site: os.kill(os.getpid(), 9)
from flows.cli import main
main()
"""
CACHED = """
import sys
from flows.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print(sorted({"mlflow", "prefect", "torch"} & {*sys.modules}))
"""


def test_a_run_without_work_resumes_what_a_run_left_that_was_killed_after_its_last_stage(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure_libraries(small)
    tracker = Tracker(Site.named().tracking, small / "mlflow-artifacts")
    tracker.start("small", "small", {}, {})
    tracker.client.set_tag(tracker.run_id, "process", dead_process())
    request = RunRequest("small")
    with monkeypatch.context() as patch:
        patch.setattr(records, "process_identity", dead_process)
        started = records.start_time(small, "small")
        record = records.write(small, "small", vars(request), [], "RUNNING", started)
    assert [left.path for left in unfinished(Site.named())] == [record]
    dispatch(make_plan(request.resolve()))
    assert unfinished(Site.named()) == []
    assert close_dead_runs(Site.named()) == 1
    assert read_header(record).outcome == "KILLED"
    assert tracker.client.get_run(tracker.run_id).info.status == "KILLED"
    count = len(list(record.parent.iterdir()))
    dispatch(make_plan(request.resolve()))
    assert len(list(record.parent.iterdir())) == count, "nothing is left to record"


def test_a_run_without_work_loads_neither_mlflow_nor_prefect(small: Path, tmp_path: Path) -> None:
    run = f"{write_run_file(tmp_path / 'mine.py', Path(os.environ['REPRO_MIRRORS']))}:SMALL"
    command = [*REPRO[:2], CACHED, "run", run]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"REPRO_ROOT": f"{small}"})
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "[]"), done.stderr


def test_a_run_killed_while_its_server_starts_is_on_record(tmp_path: Path) -> None:
    run = f"{write_run_file(tmp_path / 'mine.py', tmp_path / 'mirror')}:SMALL"
    command = [*REPRO[:2], KILLED_AT_THE_START, "run", run, "--until", "clean"]
    environment = os.environ | {"REPRO_ROOT": f"{tmp_path / 'root'}", "REPRO_MIRRORS": f"{tmp_path / 'mirror'}"}
    killed = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert killed.returncode == -9, killed.stderr
    (found,) = read_history(LocalStore(tmp_path / "root"))
    assert (found.run, found.outcome, found.command) == ("small", "KILLED", f"repro run {run} --until clean")
    assert {stage.state for stage in found.stages} == {"miss"}, "garbage collection keeps what it names"
    assert [left.command for left in unfinished(Site(root=tmp_path / "root"))] == [found.command]


def test_a_run_without_a_server_is_on_record_and_its_attempt_goes_on(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(_: Site) -> None:
        raise JobFailed("no server")

    def dispatched() -> RecordedRun:
        with pytest.raises(JobFailed):
            dispatch(make_plan(RunRequest("small", force=("score",)).resolve()))
        return read_history(LocalStore(small))[0]

    monkeypatch.setattr("flows.orchestration.dispatch._ensure_server", start)
    failed = dispatched()
    assert (failed.outcome, failed.failure, failed.start_number) == ("FAILED", "run failed: no server", 1)
    first = make_plan(RunRequest("small", force=("score",)).resolve())
    assert first.scope.attempt.is_resumed, "what it forced and finished is not made again"
    with monkeypatch.context() as patch:
        patch.setattr(records, "process_identity", dead_process)
        attempt = first.scope.attempt.id
        path = records.write(small, "small", vars(first.resolved.request), [], "RUNNING", first.started, attempt)
    for _ in range(2):
        assert dispatched().outcome == "FAILED"
        assert make_plan(first.resolved.request.resolve()).scope.attempt.id == first.scope.attempt.id
    assert len(list(path.parent.glob(f"{path.stem[:8]}*.json"))) > 3, "each start is one record"


def test_only_flow_runs_of_dead_processes_are_abandoned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_HOME", f"{tmp_path}")
    assert not has_abandoned_flow_runs(), "there is no database"
    with sqlite3.connect(tmp_path / "prefect.db") as database:
        database.execute("CREATE TABLE flow_run (state_type, labels)")
        for state, process in (("COMPLETED", dead_process()), ("RUNNING", "of/another/machine/1/1")):
            database.execute("INSERT INTO flow_run VALUES (?, ?)", (state, json.dumps({PROCESS_LABEL: process})))
        database.execute("INSERT INTO flow_run VALUES ('RUNNING', NULL)")
    assert not has_abandoned_flow_runs()
    with sqlite3.connect(tmp_path / "prefect.db") as database:
        database.execute("UPDATE flow_run SET state_type = 'RUNNING'")
    assert has_abandoned_flow_runs()


@pytest.mark.slow
def test_what_a_kill_after_the_last_stage_left_running_is_closed(tmp_path: Path) -> None:
    root, run = tmp_path / "root", f"{write_run_file(tmp_path / 'mine.py', tmp_path / 'mirror')}:SMALL"
    environment = os.environ | {"REPRO_ROOT": f"{root}", "REPRO_MIRRORS": f"{tmp_path / 'mirror'}"}

    def repro(*words: str, code: str = REPRO[2]) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*REPRO[:2], code, *words], env=environment, capture_output=True, text=True)

    def states(file: str, query: str) -> set[str]:
        with sqlite3.connect(root / file) as database:
            return {state for (state,) in database.execute(query)}

    killed = repro("run", run, "--until", "clean", code=KILLED_AT_THE_END)
    assert killed.returncode == -9, killed.stderr
    assert states("prefect/prefect.db", "SELECT state_type FROM flow_run") == {"RUNNING"}
    assert "RUNNING" in states("mlflow.db", "SELECT status FROM runs")
    done = repro("status", "--close")
    assert done.returncode == 0, done.stderr
    assert states("prefect/prefect.db", "SELECT state_type FROM flow_run") == {"CRASHED"}
    assert states("mlflow.db", "SELECT status FROM runs") == {"FINISHED", "KILLED"}
    assert "To resume them:\nrepro run " in done.stdout, "it is still to be repeated"
    assert "--until clean" in done.stdout
    assert "--until clean" not in repro("status").stdout, "it was closed"
