"""Brings databases of older versions of MLflow and Prefect up to date, before the servers start.

Backs them up first. If an upgrade fails, puts the backup back; the service then does not start.
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
    for database in found:
        library = database.library
        say(f"{database.file} is of another version of {library} (schema {database.revision}): backed up to {folder}")
    for database in found:
        say(f"upgrading {database.file}")
        environment = {**os.environ, **NO_TELEMETRY, "PREFECT_HOME": f"{root / 'prefect'}"}
        environment |= {"PREFECT_SERVER_DATABASE_CONNECTION_URL": sqlite_uri(database.file, "sqlite+aiosqlite")}
        done = subprocess.run(database.command, capture_output=True, text=True, env=environment)
        if done.returncode:
            put_back(root, folder)
            reason = _reason(done.stderr or done.stdout)
            raise JobFailed(
                f"{database.library} could not upgrade {database.file} ({reason}); the databases are as before, also "
                f"in {folder}: use the version of {database.library} that wrote them, or move {database.file} away"
            )


def _reason(output: str) -> str:
    """The last line that names an error, else the last: SQLAlchemy writes the statement and a link below it."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return ([line for line in lines if ERROR.match(line)] or lines or ["it does not say why"])[-1][:300]


def outdated(root: Path) -> list[Outdated]:
    """The databases of ``root`` with another schema than the installed libraries have."""
    mlflow = root / "mlflow.db"
    prefect = root / "prefect" / "prefect.db"
    upgrade_mlflow = (sys.executable, "-m", "mlflow", "db", "upgrade", sqlite_uri(mlflow))
    upgrade_prefect = (sys.executable, "-m", "prefect", "server", "database", "upgrade", "-y")
    found = []
    for library, file, newest, command in (
        ("MLflow", mlflow, SCHEMA_REVISION, upgrade_mlflow),
        ("Prefect", prefect, prefect_revision(), upgrade_prefect),
    ):
        present = _revision(file)
        if present and newest and present != newest:
            found.append(Outdated(library, file, present, command))
    return found


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
