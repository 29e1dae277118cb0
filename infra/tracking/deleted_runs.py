"""Runs that somebody deleted in MLflow: it hides them and keeps their rows and files until they are collected."""

import os
import sqlite3
import subprocess
import sys
import time
from contextlib import closing

from infra.errors import JobFailed
from infra.servers.environment import NO_TELEMETRY
from infra.servers.sqlite_addresses import sqlite_file

MIN_AGE_DAYS = 7
"""A deleted run can be brought back for so long."""


def deleted_runs(uri: str) -> int:
    """The number of runs in MLflow's SQLite file at ``uri`` that were deleted so long ago; 0 for a server."""
    file = sqlite_file(uri)
    before = round((time.time() - MIN_AGE_DAYS * 86_400) * 1000)
    query = "SELECT count(*) FROM runs WHERE lifecycle_stage = 'deleted' AND deleted_time < ?"
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro" if file else "", uri=True)) as connection:
            return int(connection.execute(query, (before,)).fetchone()[0])
    except sqlite3.Error:  # there is no file, or it is of another version
        return 0


def remove_deleted_runs(uri: str) -> None:
    """Let MLflow remove what was deleted so long ago, rows and files. Raises JobFailed if it does not."""
    command = (sys.executable, "-m", "mlflow", "gc", "--backend-store-uri", uri, "--older-than", f"{MIN_AGE_DAYS}d")
    environment = {**os.environ, **NO_TELEMETRY, "MLFLOW_TRACKING_URI": uri}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        raise JobFailed(f"MLflow could not remove its deleted runs: {' '.join(lines[-1:])[:300]}")
