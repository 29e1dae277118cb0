"""Databases are copied while they are written, and put back whole or not at all."""

import sqlite3
import threading
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from stand_ins import free_service

from flows.commands.backup import backup
from flows.runner import records
from infra.errors import BadConfiguration, BadData
from infra.servers import database_copies
from infra.servers.database_copies import back_up


def rows(file: Path) -> list[int]:
    with closing(sqlite3.connect(file)) as connection:
        return [value for (value,) in connection.execute("SELECT value FROM pairs ORDER BY value")]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A root with both databases; Prefect's has its newest rows in a write-ahead log."""
    root = tmp_path / "root"
    (root / "prefect").mkdir(parents=True)
    for name in database_copies.FILES:
        with closing(sqlite3.connect(root / name)) as connection:
            connection.execute("PRAGMA journal_mode=" + ("WAL" if "prefect" in name else "DELETE"))
            connection.execute("CREATE TABLE pairs (value INTEGER)")
            connection.executemany("INSERT INTO pairs VALUES (?)", [(1,), (2,)])
            connection.commit()
    monkeypatch.setenv("REPRO_ROOT", f"{root}")
    return root


def test_a_copy_made_while_rows_are_written_is_whole(root: Path, tmp_path: Path) -> None:
    """Rows are written in pairs: a copy from between two transactions holds both of a pair or none."""
    ended, begun = threading.Event(), threading.Event()

    def write() -> None:
        with closing(sqlite3.connect(root / "prefect/prefect.db", timeout=60)) as connection:
            value = 3
            while not ended.is_set():
                connection.executemany("INSERT INTO pairs VALUES (?)", [(value,), (value + 1,)])
                connection.commit()
                value += 2
                begun.set()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert begun.wait(60)
        copies = back_up(root, tmp_path / "copy")
    finally:
        ended.set()
        writer.join()
    assert [copy.name for copy in copies] == ["mlflow.db", "prefect.db"]
    copied = rows(tmp_path / "copy" / "prefect.db")
    assert len(copied) >= 4
    assert copied == list(range(1, len(copied) + 1))
    assert len(copied) % 2 == 0
    assert rows(tmp_path / "copy" / "mlflow.db") == [1, 2]


def test_databases_on_postgresql_are_refused_when_the_service_is_down_too(root: Path) -> None:
    service = replace(free_service(root), postgresql=True)
    service.folder.mkdir()
    service.write()
    for words in ({}, {"restore": root}):
        with pytest.raises(BadConfiguration, match="pg_dump"):
            backup(**words)


def test_what_was_backed_up_is_restored_and_the_present_kept(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    backup()
    folder = Path(capsys.readouterr().out.splitlines()[0]).parent
    assert folder.parent == root / "backups"
    for name in database_copies.FILES:
        with closing(sqlite3.connect(root / name)) as connection:
            connection.execute("INSERT INTO pairs VALUES (9)")
            connection.commit()
    backup(restore=folder)
    assert [rows(root / name) for name in database_copies.FILES] == [[1, 2], [1, 2]]
    kept = next(each for each in (root / "backups").iterdir() if each != folder)
    assert f"the present databases are kept in {kept}" in capsys.readouterr().err
    assert [rows(kept / name) for name in ("mlflow.db", "prefect.db")] == [[1, 2, 9], [1, 2, 9]]


def test_no_damaged_or_unfinished_copy_is_put_back(root: Path, tmp_path: Path) -> None:
    with pytest.raises(BadConfiguration, match="is no backup"):
        backup(restore=tmp_path)
    folder = tmp_path / "copy"
    back_up(root, folder)
    with pytest.raises(BadConfiguration, match="exists"):
        back_up(root, folder)
    (folder / "prefect.db").write_bytes(b"no database" * 1000)
    with pytest.raises(BadData, match=r"prefect\.db is damaged"):
        backup(restore=folder)
    assert rows(root / "mlflow.db") == [1, 2]
    with pytest.raises(BadConfiguration, match="has no database"):
        back_up(tmp_path / "empty", tmp_path / "other")


def test_a_running_service_is_not_restored_under(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    back_up(root, root / "backups" / "one")
    monkeypatch.setattr("flows.commands.backup.lifecycle.running", lambda _: object())
    with pytest.raises(BadConfiguration, match="stop it with `repro down` first"):
        backup(restore=root / "backups" / "one")


def test_a_damaged_database_is_kept_aside_and_replaced(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    back_up(root, root / "backups" / "one")
    (root / "mlflow.db").write_bytes(b"no database" * 1000)
    backup(restore=root / "backups" / "one")
    assert rows(root / "mlflow.db") == [1, 2]
    (aside,) = root.glob("mlflow.db.damaged-*")
    assert aside.read_bytes() == b"no database" * 1000
    assert f"kept as {aside}" in capsys.readouterr().err


def test_an_interrupted_backup_leaves_nothing(root: Path) -> None:
    (root / "prefect/prefect.db").write_bytes(b"no database" * 1000)
    with pytest.raises(BadData, match=r"prefect\.db is damaged"):
        backup()
    assert not [*(root / "backups").iterdir()]


def test_no_database_is_replaced_under_a_run_at_work(root: Path) -> None:
    back_up(root, root / "backups" / "one")
    asked = dict.fromkeys(("run", "from_stage", "until", "site"), "demo") | {"force": (), "overrides": ()}
    records.write(root, "demo", asked, [], records.RUNNING, datetime.now(UTC))
    with pytest.raises(BadConfiguration, match="demo is at work"):
        backup(restore=root / "backups" / "one")
