"""Brings MLflow's database of an older version up to date before its server starts, which would refuse it.

Backs up both databases first. If the upgrade fails, puts the backup back; the service then does not start. Prefect's
server upgrades its own database whenever it starts, also for a single run.
"""

import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from infra.errors import JobFailed
from infra.servers.database_copies import back_up, default_folder, put_back
from infra.servers.environment import NO_TELEMETRY
from infra.servers.mlflow_sqlite import SCHEMA_REVISION
from infra.servers.sqlite_addresses import sqlite_uri

ERROR = re.compile(r"[\w.]*(Error|Exception): ")


def upgrade(root: Path, say: Callable[[str], None]) -> None:
    """Back up the databases of ``root`` and upgrade MLflow's if it needs that. Nothing else may use them meanwhile.

    Raises JobFailed, after the databases are as before, if the upgrade fails.
    """
    file = root / "mlflow.db"
    present = _revision(file)
    if present in ("", SCHEMA_REVISION):
        return
    folder = default_folder(root)
    back_up(root, folder)
    say(f"{file} is of another version of MLflow (schema {present}): backed up to {folder}; upgrading it")
    command = (sys.executable, "-m", "mlflow", "db", "upgrade", sqlite_uri(file))
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **NO_TELEMETRY})
    if done.returncode:
        put_back(root, folder)
        raise JobFailed(
            f"MLflow could not upgrade {file} ({_reason(done.stderr or done.stdout)}); the databases are as before, "
            f"also in {folder}: use the version of MLflow that wrote them, or move {file} away"
        )


def _reason(output: str) -> str:
    """The last line that names an error, else the last: SQLAlchemy writes the statement and a link below it."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return ([line for line in lines if ERROR.match(line)] or lines or ["it does not say why"])[-1][:300]


def _revision(file: Path) -> str:
    """The schema revision of a database; "" where there is none, or it cannot be read."""
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            found = connection.execute("SELECT version_num FROM alembic_version").fetchall()
    except sqlite3.Error:
        return ""
    return ", ".join(sorted(row[0] for row in found))
