"""MLflow's database of another version is backed up and upgraded; after a failed upgrade it is as before."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from infra.errors import JobFailed
from infra.servers.mlflow_sqlite import SCHEMA_REVISION
from infra.servers.sqlite_addresses import sqlite_uri
from infra.service.upgrades import upgrade


def revision(file: Path) -> str:
    with closing(sqlite3.connect(file)) as connection:
        return str(connection.execute("SELECT version_num FROM alembic_version").fetchone()[0])


def test_a_missing_present_or_unreadable_database_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "mlflow.db"

    def fail(_: str) -> None:
        raise AssertionError

    upgrade(tmp_path, fail)
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE alembic_version (version_num VARCHAR(32))")
        connection.execute("INSERT INTO alembic_version VALUES (?)", (SCHEMA_REVISION,))
        connection.commit()
    upgrade(tmp_path, fail)
    file.write_bytes(b"no database" * 1000)  # its server says what is wrong with it
    upgrade(tmp_path, fail)


@pytest.mark.slow
def test_an_older_database_is_upgraded_or_as_before(tmp_path: Path) -> None:
    import alembic.command
    import sqlalchemy
    from alembic.script import ScriptDirectory
    from mlflow.store.db.utils import _get_alembic_config
    from mlflow.store.tracking.dbmodels.initial_models import Base

    file = tmp_path / "mlflow.db"
    config = _get_alembic_config(sqlite_uri(file))
    newest = ScriptDirectory.from_config(config).get_revision(SCHEMA_REVISION)
    engine = sqlalchemy.create_engine(sqlite_uri(file))
    Base.metadata.create_all(engine)  # the tables that the first migration expects
    engine.dispose()
    assert newest
    alembic.command.upgrade(config, f"{newest.down_revision}")
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("INSERT INTO experiments (name, lifecycle_stage) VALUES ('kept', 'active')")
        connection.execute("UPDATE alembic_version SET version_num = 'unknown'")
        connection.commit()
    with pytest.raises(JobFailed):
        upgrade(tmp_path, lambda _: None)
    assert revision(file) == "unknown"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = ?", (f"{newest.down_revision}",))
        connection.commit()
    upgrade(tmp_path, lambda _: None)
    assert revision(file) == SCHEMA_REVISION
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("SELECT name FROM experiments").fetchall() == [("kept",)]
