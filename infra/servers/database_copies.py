"""Copies a root's databases (MLflow's and Prefect's) by SQLite's own backup, consistent even in use, and restores."""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path

from infra.errors import BadConfiguration, BadData
from infra.servers.environment import private_folder
from infra.servers.sqlite_addresses import BUSY_SECONDS, open_read_only

FILES = ("mlflow.db", "prefect/prefect.db")
"""Paths of the databases below the root."""
FOLDER = "backups"


def default_folder(root: Path) -> Path:
    """Return the path of a new folder below the root, named after the time (UTC)."""
    return root / FOLDER / f"{datetime.now(UTC):%Y%m%dT%H%M%S-%f}"


def back_up(root: Path, folder: Path) -> list[Path]:
    """Copy each database of ``root`` that exists into a new ``folder``; return the copies.

    Raises BadConfiguration if there is none or the folder exists, BadData if a database is damaged.
    """
    files = [root / name for name in FILES if (root / name).is_file()]
    if not files:
        raise BadConfiguration(f"{root} has no database: neither {' nor '.join(FILES)} exists")
    if folder.exists():
        raise BadConfiguration(f"{folder} exists; name a new folder")
    partial = folder.with_name(f"{folder.name}.partial")  # so that a folder of the final name is complete
    partial.mkdir(parents=True, exist_ok=True)
    partial.chmod(0o700)  # Prefect's database holds addresses of notifications
    try:
        for file in files:
            _copy(file, partial / file.name)
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return [folder / file.name for file in files]


def restore(root: Path, folder: Path, say: Callable[[str], None]) -> list[Path]:
    """Back up the present databases, then restore those of a backup; return the restored paths.

    The caller makes sure that no server runs. Before anything changes, raises BadConfiguration for a folder without
    databases or a database in use, and BadData for a damaged copy.
    """
    places = {folder / Path(name).name: root / name for name in FILES if (folder / Path(name).name).is_file()}
    if not places:
        raise BadConfiguration(f"{folder} is no backup: it holds neither {' nor '.join(FILES)}")
    for copy in places:
        _check(copy)
    before = default_folder(root)
    for file in places.values():
        if file.is_file() and (damage := _damage(file)):
            aside = file.with_name(f"{file.name}.damaged-{before.name}")
            for end in ("-wal", "-shm", ""):  # SQLite would apply the log to the copy
                with suppress(FileNotFoundError):
                    Path(f"{file}{end}").rename(f"{aside}{end}")
            say(f"the present {file.name} is damaged ({damage}) and kept as {aside}")
    if any(file.is_file() for file in places.values()):
        back_up(root, before)
        say(f"the present databases are kept in {before}")
    for copy, file in places.items():
        if file.parent != root:
            private_folder(file.parent)
        file.parent.mkdir(parents=True, exist_ok=True)
        _copy(copy, file)
    return list(places.values())


def _copy(source: Path, target: Path) -> None:
    """Copy a database over ``target`` in one transaction. An interrupted copy changes nothing."""
    _check(source)
    try:
        with closing(open_read_only(source)) as reads, closing(sqlite3.connect(target, timeout=BUSY_SECONDS)) as writes:
            reads.backup(writes)
    except sqlite3.OperationalError as error:
        raise BadConfiguration(
            f"{target} cannot be written ({error}); end the runs and servers that use it, or free space"
        ) from error
    _check(target)


def _check(file: Path) -> None:
    """Raise BadData unless the file is an undamaged database."""
    if damage := _damage(file):
        raise BadData(f"{file} is damaged ({damage}); use another backup")


def _damage(file: Path) -> str:
    """Return what SQLite says of a damaged file; otherwise empty. Raises BadConfiguration for one in use."""
    try:
        with closing(open_read_only(file)) as connection:
            return str(connection.execute("PRAGMA quick_check(1)").fetchone()[0]).removesuffix("ok")
    except sqlite3.OperationalError as error:
        raise BadConfiguration(f"{file} cannot be read ({error}); end the runs and servers that use it") from error
    except sqlite3.DatabaseError as error:
        return f"{error}"
