"""Databases of other versions are named, backed up and upgraded; after a failed upgrade they are as before."""

import os
import sqlite3
import subprocess
import sys
import uuid
from contextlib import closing
from pathlib import Path

import pytest

from infra.errors import JobFailed
from infra.servers.environment import NO_TELEMETRY
from infra.servers.mlflow_sqlite import SCHEMA_REVISION
from infra.servers.sqlite_addresses import sqlite_uri
from infra.service.upgrades import outdated, prefect_revision, upgrade


def database(file: Path, revision: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE alembic_version (version_num VARCHAR(32))")
        connection.execute("INSERT INTO alembic_version VALUES (?)", (revision,))
        connection.commit()
    return file


def revision(file: Path) -> str:
    with closing(sqlite3.connect(file)) as connection:
        return str(connection.execute("SELECT version_num FROM alembic_version").fetchone()[0])


def test_only_databases_of_other_versions_are_outdated(tmp_path: Path) -> None:
    assert outdated(tmp_path) == []
    database(tmp_path / "new" / "mlflow.db", SCHEMA_REVISION)
    database(tmp_path / "new" / "prefect" / "prefect.db", prefect_revision())
    assert outdated(tmp_path / "new") == []
    database(tmp_path / "old" / "mlflow.db", "451aebb31d03")
    database(tmp_path / "old" / "prefect" / "prefect.db", "9725c1cbee35")
    found = [(each.library, each.revision) for each in outdated(tmp_path / "old")]
    assert found == [("MLflow", "451aebb31d03"), ("Prefect", "9725c1cbee35")]
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "mlflow.db").write_bytes(b"no database" * 1000)
    assert outdated(tmp_path / "broken") == [], "the server says what is wrong with it"


@pytest.mark.slow
def test_an_older_mlflow_database_is_upgraded(tmp_path: Path) -> None:
    import alembic.command
    import sqlalchemy
    from alembic.script import ScriptDirectory
    from mlflow.store.db.utils import _get_alembic_config

    file = tmp_path / "mlflow.db"
    config = _get_alembic_config(sqlite_uri(file))
    newest = ScriptDirectory.from_config(config).get_revision(SCHEMA_REVISION)
    from mlflow.store.tracking.dbmodels.initial_models import Base

    engine = sqlalchemy.create_engine(sqlite_uri(file))
    Base.metadata.create_all(engine)  # the tables that the first migration expects
    engine.dispose()
    assert newest
    alembic.command.upgrade(config, f"{newest.down_revision}")
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("INSERT INTO experiments (name, lifecycle_stage) VALUES ('kept', 'active')")
        connection.commit()
    before = revision(file)
    upgrade(tmp_path, lambda _: None)
    assert before != revision(file) == SCHEMA_REVISION
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("SELECT name FROM experiments").fetchall() == [("kept",)]
    assert upgrade(tmp_path, lambda _: pytest.fail("it is of this version")) is None  # type: ignore[func-returns-value]


def older_prefect_database(root: Path) -> Path:
    """A database with the tables of Prefect 3.7.8, made by Prefect's own migrations, and a flow."""
    file = root / "prefect" / "prefect.db"
    file.parent.mkdir(parents=True)
    words = [sys.executable, "-m", "prefect", "server", "database", "upgrade", "-y", "-r", "79e7a60e43d8"]
    outer = {**os.environ, **NO_TELEMETRY, "PREFECT_HOME": f"{file.parent}"}
    environment = outer | {"PREFECT_SERVER_DATABASE_CONNECTION_URL": sqlite_uri(file, "sqlite+aiosqlite")}
    subprocess.run(words, check=True, env=environment)
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("INSERT INTO flow (id, name) VALUES (?, 'kept')", (str(uuid.uuid4()),))
        connection.commit()
    return file


@pytest.mark.slow
def test_an_older_prefect_database_is_upgraded(tmp_path: Path) -> None:
    file, said = older_prefect_database(tmp_path), list[str]()
    upgrade(tmp_path, said.append)
    assert "is of another version of Prefect (schema 79e7a60e43d8): backed up to" in said[0]
    assert revision(file) == prefect_revision()
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("SELECT name FROM flow").fetchall() == [("kept",)]
    assert not outdated(tmp_path)


@pytest.mark.slow
def test_an_older_prefect_database_that_cannot_be_upgraded_is_as_before(tmp_path: Path) -> None:
    file = older_prefect_database(tmp_path)
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("DROP TABLE event_resources")  # the next migration indexes it
        connection.commit()
    with pytest.raises(JobFailed, match=r"Prefect could not upgrade .*\(.*no such table: main.event_resources\)"):
        upgrade(tmp_path, lambda _: None)
    assert revision(file) == "79e7a60e43d8"
