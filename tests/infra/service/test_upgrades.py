"""Databases of other versions are named, backed up and upgraded; after a failed upgrade they are as before."""

import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from infra.errors import JobFailed
from infra.servers.mlflow_schema import SCHEMA_REVISION
from infra.servers.sqlite_addresses import sqlite_uri
from infra.service import upgrades
from infra.service.upgrades import Outdated, outdated, prefect_revision, upgrade


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


def test_a_failed_upgrade_leaves_the_databases_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = database(tmp_path / "mlflow.db", "old")
    harm = f"import sqlite3; c = sqlite3.connect({str(file)!r}); c.execute('DROP TABLE alembic_version'); c.commit()"
    broken = (sys.executable, "-c", f"{harm}; raise SystemExit('no such revision')")
    monkeypatch.setattr(upgrades, "outdated", lambda _: [Outdated("MLflow", file, "old", broken)])
    said: list[str] = []
    with pytest.raises(JobFailed, match=r"could not upgrade .*mlflow\.db \(no such revision\)"):
        upgrade(tmp_path, said.append)
    assert revision(file) == "old"
    (folder,) = (tmp_path / "backups").iterdir()
    assert revision(folder / "mlflow.db") == "old"
    assert f"backed up to {folder}" in said[0]


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
