"""Databases on a real PostgreSQL server are copied and put back whole; what cannot be is said in one sentence."""

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from postgresql import Cluster

from flows.commands.backup import backup, restore
from infra.errors import BadConfiguration, BadData
from infra.servers.addresses import Addresses
from infra.service import postgresql_copies
from infra.service.databases import VARIABLE, Databases

PASSWORD = "planted S@CRET/42"
MAKE = """CREATE EXTENSION IF NOT EXISTS pg_trgm;
CREATE TYPE kind AS ENUM ('A', 'B');
CREATE TABLE runs (id serial PRIMARY KEY, name text, kind kind);
CREATE INDEX by_name ON runs USING gin (name gin_trgm_ops);
INSERT INTO runs (name, kind) VALUES ('kept', 'A')"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    found = Cluster("of-postgres")
    with closing(connected(found.address("postgres", "of-postgres", "postgres"))) as connection:
        connection.cursor().execute("CREATE ROLE repro LOGIN CREATEDB PASSWORD %s", (PASSWORD,))
    yield found
    found.end()


def connected(address: str) -> Any:
    import psycopg2

    connection = psycopg2.connect(address)
    connection.autocommit = True
    return connection


def asked(databases: Databases, words: str) -> list[Any]:
    """The rows of a statement in MLflow's database."""
    with closing(connected(databases.for_mlflow.replace("+psycopg2", ""))) as connection:
        cursor = connection.cursor()
        cursor.execute(words)
        return list(cursor.fetchall()) if cursor.description else []


@pytest.fixture
def databases(
    cluster: Cluster, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Databases:
    """Two databases of a role that may create databases and no more, with a table in MLflow's."""
    name = re.sub(r"\W", "-", request.node.name)[-30:]
    address = cluster.address("repro", quote(PASSWORD, safe=""), name)
    monkeypatch.setenv(VARIABLE, address)
    (tmp_path / "repro").mkdir()
    found = Databases(address)
    found.make()
    asked(found, MAKE)
    return found


def test_a_backup_is_put_back_and_what_a_newer_version_added_is_gone(
    databases: Databases, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    backup(tmp_path / "copy")
    assert capsys.readouterr().out.split() == [f"{tmp_path}/copy/{name}" for name in ("prefect.dump", "mlflow.dump")]
    assert (tmp_path / "copy").stat().st_mode & 0o77 == 0
    asked(databases, "UPDATE runs SET name = 'changed'; CREATE TYPE later AS ENUM ('C')")
    asked(databases, "CREATE TABLE newer (run int REFERENCES runs, kind later)")
    restore(tmp_path / "copy")
    assert asked(databases, "SELECT name, kind FROM runs") == [("kept", "A")]
    assert asked(databases, "SELECT tablename FROM pg_tables WHERE schemaname = 'public'") == [("runs",)]
    assert asked(databases, "INSERT INTO runs (name, kind) VALUES ('next', 'B') RETURNING id") == [(2,)]
    (before,) = (tmp_path / "repro" / "backups").iterdir()
    restore(before)
    assert asked(databases, "SELECT name FROM runs ORDER BY id") == [("changed",)], "the present ones were kept"


def test_a_backup_is_put_back_where_the_databases_are_gone(databases: Databases, tmp_path: Path) -> None:
    backup(tmp_path / "copy")
    with closing(connected(databases.for_mlflow.replace("+psycopg2", "").replace(databases.names[1], "postgres"))) as c:
        for name in databases.names:
            c.cursor().execute(f'DROP DATABASE "{name}"')
    restore(tmp_path / "copy")
    assert asked(databases, "SELECT name FROM runs") == [("kept",)]


def test_a_restore_that_fails_changes_nothing(
    databases: Databases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup(tmp_path / "copy")
    asked(databases, "UPDATE runs SET name = 'changed'")
    dump = tmp_path / "copy" / "mlflow.dump"
    whole = dump.read_bytes()
    dump.write_bytes(b"no dump")
    with pytest.raises(BadData, match=r"mlflow\.dump is damaged"):
        restore(tmp_path / "copy")
    dump.write_bytes(whole)
    monkeypatch.setattr(postgresql_copies, "WAIT", "SET lock_timeout = '200ms'")
    with closing(connected(databases.for_mlflow.replace("+psycopg2", ""))) as reader:
        reader.autocommit = False
        reader.cursor().execute("SELECT * FROM runs")
        with pytest.raises(BadConfiguration, match="psql of .*_mlflow at .* failed: .*lock timeout") as error:
            restore(tmp_path / "copy")
    assert "CRET" not in f"{error.value}"
    assert asked(databases, "SELECT name FROM runs") == [("changed",)]


def test_what_is_missing_is_said_before_anything_is_written(
    databases: Databases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("PATH", f"{tmp_path}")
        with pytest.raises(BadConfiguration, match="pg_dump is missing.*postgresql-client"):
            backup(tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
    backup(tmp_path / "copy")
    monkeypatch.delenv(VARIABLE)
    with pytest.raises(BadConfiguration, match="is a backup of PostgreSQL databases: set REPRO_DATABASE_URL"):
        restore(tmp_path / "copy")
    running = Addresses("http://127.0.0.1:1/api", "http://127.0.0.1:2")
    monkeypatch.setattr("flows.commands.backup.running_addresses", lambda _: running)
    with pytest.raises(BadConfiguration, match="uses PostgreSQL: set REPRO_DATABASE_URL or --database-url"):
        backup(tmp_path / "other")
