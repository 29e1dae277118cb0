"""Brings databases of older versions of MLflow and Prefect up to date, before the servers start.

Each database is backed up first. Where an upgrade fails, the backup is put back and the service does not start.
"""

import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from infra.errors import JobFailed
from infra.servers.database_copies import back_up, default_folder, put_back
from infra.servers.environment import NO_TELEMETRY
from infra.servers.mlflow_sqlite import SCHEMA_REVISION
from infra.servers.sqlite_addresses import sqlite_uri

ERROR = re.compile(r"[\w.]*(Error|Exception): ")
PREFECT_MIGRATIONS = "server/database/_migrations/versions/sqlite"
REVISION = re.compile(r"^(down_)?revision(?:: [^=]+)? = ['\"](\w+)['\"]", re.M)


@dataclass(frozen=True)
class Outdated:
    """A database whose tables are not those of the installed library, and the command that upgrades it."""

    library: str
    file: Path
    revision: str
    command: tuple[str, ...]


def upgrade(root: Path, say: Callable[[str], None]) -> None:
    """Back up and upgrade the databases of ``root`` that need it. Nothing else may use them meanwhile.

    Raises JobFailed, after the databases are as before, if an upgrade fails.
    """
    found = outdated(root)
    if not found:
        return
    folder = default_folder(root)
    back_up(root, folder)
    for each in found:
        say(f"{each.file} is of another version of {each.library} (schema {each.revision}): backed up to {folder}")
    for each in found:
        say(f"upgrading {each.file}")
        environment = {**os.environ, **NO_TELEMETRY, "PREFECT_HOME": f"{root / 'prefect'}"}
        environment |= {"PREFECT_SERVER_DATABASE_CONNECTION_URL": sqlite_uri(each.file, "sqlite+aiosqlite")}
        done = subprocess.run(each.command, capture_output=True, text=True, env=environment)
        if done.returncode:
            put_back(root, folder)
            reason = _reason(done.stderr or done.stdout)
            raise JobFailed(
                f"{each.library} could not upgrade {each.file} ({reason}); the databases are as "
                f"before, also in {folder}: use the version of {each.library} that wrote them, or move {each.file} away"
            )


def _reason(output: str) -> str:
    """The last line that names an error, else the last: SQLAlchemy writes the statement and a link below it."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return ([line for line in lines if ERROR.match(line)] or lines or ["it does not say why"])[-1][:300]


def outdated(root: Path) -> list[Outdated]:
    """The databases of ``root`` with another schema than the installed libraries have."""
    python = sys.executable
    mlflow = root / "mlflow.db"
    prefect = root / "prefect" / "prefect.db"
    upgrades = (
        ("MLflow", mlflow, SCHEMA_REVISION, (python, "-m", "mlflow", "db", "upgrade", sqlite_uri(mlflow))),
        ("Prefect", prefect, prefect_revision(), (python, "-m", "prefect", "server", "database", "upgrade", "-y")),
    )
    found = [(library, file, _revision(file), newest, command) for library, file, newest, command in upgrades]
    return [
        Outdated(library, file, old, command)
        for library, file, old, newest, command in found
        if old and newest and old != newest
    ]


def _revision(file: Path) -> str:
    """The schema revision of a database; "" where there is none, or it cannot be read."""
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            found = connection.execute("SELECT version_num FROM alembic_version").fetchall()
    except sqlite3.Error:
        return ""
    return ", ".join(sorted(row[0] for row in found))


def prefect_revision() -> str:
    """The last migration of the installed Prefect, read from its files without an import; "" if they do not tell."""
    found = find_spec("prefect")
    assert found is not None
    assert found.origin
    revisions = set[str]()
    earlier = set[str]()
    for file in (Path(found.origin).parent / PREFECT_MIGRATIONS).glob("*.py"):
        for is_earlier, revision in REVISION.findall(file.read_text()):
            (earlier if is_earlier else revisions).add(revision)
    newest = revisions - earlier
    return newest.pop() if len(newest) == 1 else ""
