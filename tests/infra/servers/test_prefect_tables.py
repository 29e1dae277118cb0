"""A new SQLite file of Prefect has the tables that Prefect's own migrations would create."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from infra.servers import prefect_tables
from infra.servers.prefect_tables import TABLES, create_tables, migrated


def tables(file: Path) -> str:
    with closing(sqlite3.connect(file)) as connection:
        return "".join(f"{line}\n" for line in connection.iterdump())


def unordered(statements: str) -> list[str]:
    """The lines of SQL statements; in which order Prefect creates constraints differs from one time to the next."""
    return sorted(line.strip(" \t,") for line in statements.splitlines())


def test_the_recorded_tables_are_those_of_prefects_migrations(tmp_path: Path) -> None:
    create_tables(tmp_path / "prefect.db")
    assert tables(tmp_path / "prefect.db") == TABLES.read_text()
    assert unordered(TABLES.read_text()) == unordered(migrated()), (
        "Prefect has changed: python -m infra.servers.prefect_tables"
    )


def test_a_database_is_left_to_prefect_when_its_migrations_are_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefect_tables, "prefect_revision", lambda: "0123456789ab")
    create_tables(tmp_path / "prefect.db")
    assert not list(tmp_path.iterdir())


def test_what_exists_is_not_touched_and_what_a_killed_start_left_is_replaced(tmp_path: Path) -> None:
    file = tmp_path / "prefect.db"
    (tmp_path / "prefect.db.partial").write_bytes(b"half")
    create_tables(file)
    assert [each.name for each in tmp_path.iterdir()] == ["prefect.db"]
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE mine (id INTEGER)")
    before = file.read_bytes()
    create_tables(file)
    assert file.read_bytes() == before


@pytest.mark.parametrize("file", [None, Path(":memory:")])
def test_another_database_than_a_file_is_left_to_prefect(
    file: Path | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    create_tables(file)
    assert not list(tmp_path.iterdir())
