"""What was deleted in MLflow long ago is removed with its files; what is deleted since can be brought back."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from infra.tracking.client import count_deleted_runs, remove_deleted_runs
from infra.tracking.tracker import Tracker


@pytest.mark.slow
def test_runs_that_were_deleted_long_ago_are_removed_with_their_files(tmp_path: Path) -> None:
    tracker = Tracker("", tmp_path / "mlflow-artifacts")
    tracker.start("ende", "ende", {}, {})
    long_ago, lately, kept = (tracker.start_stage("report", "", f"k{n}", {}) for n in range(3))
    (tmp_path / "report.html").write_text("<p>")
    for run in (long_ago, lately, kept):
        tracker.log_artifacts(run, [tmp_path / "report.html"])
    assert count_deleted_runs(tracker.uri) == 0
    for run in (long_ago, lately):
        tracker.client.delete_run(run)
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as connection:
        connection.execute("UPDATE runs SET deleted_time = 1 WHERE run_uuid = ?", (long_ago,))
        connection.commit()
    assert count_deleted_runs(tracker.uri) == 1
    remove_deleted_runs(tracker.uri)
    assert count_deleted_runs(tracker.uri) == 0
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as connection:
        left = {run for (run,) in connection.execute("SELECT run_uuid FROM runs")}
    assert left == {tracker.run_id, lately, kept}
    assert not list((tmp_path / "mlflow-artifacts").rglob(f"{long_ago}/**/report.html"))
    assert list((tmp_path / "mlflow-artifacts").rglob(f"{lately}/**/report.html"))


def test_a_server_or_no_file_has_none_to_remove(tmp_path: Path) -> None:
    assert count_deleted_runs("http://127.0.0.1:9") == 0
    assert count_deleted_runs(f"sqlite:///{tmp_path}/mlflow.db") == 0
    assert not (tmp_path / "mlflow.db").exists()
