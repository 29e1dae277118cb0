"""Copies the SQLite databases of a root, MLflow's and Prefect's, and puts copies back, while other processes use them.

SQLite's own backup copies a database as it is at one moment, also while servers write to it.
"""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from infra.errors import BadConfiguration, BadData

FILES = ("mlflow.db", "prefect/prefect.db")
"""The databases, below the root."""
FOLDER = "backups"
TIME_FORMAT = "%Y%m%dT%H%M%S-%f"
LOCK_SECONDS = 60
ABOUT = "backup.json"


def default_folder(root: Path) -> Path:
    """A new folder below the root that is named after the time (UTC)."""
    return root / FOLDER / f"{datetime.now(UTC):{TIME_FORMAT}}"


def back_up(root: Path, folder: Path) -> list[Path]:
    """Copy each database of ``root`` that exists into ``folder``; return the copies.

    Raises BadConfiguration if there is none or the folder has a backup already, BadData if a database is damaged.
    """
    found = [name for name in FILES if (root / name).is_file()]
    if not found:
        raise BadConfiguration(f"{root} has no database: neither {' nor '.join(FILES)} exists")
    if (folder / ABOUT).exists():
        raise BadConfiguration(f"{folder} holds a backup already; name another folder")
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)  # Prefect's database holds addresses of notifications
    copies = []
    for name in found:
        copy = folder / Path(name).name
        _copy(root / name, copy)
        copies.append(copy)
    names = [copy.name for copy in copies]
    about = {"root": f"{root}", "at": datetime.now(UTC).isoformat(timespec="seconds"), "files": names}
    (folder / ABOUT).write_text(json.dumps(about, indent=1) + "\n")  # last: without it a backup is not whole
    return copies


def restore(root: Path, folder: Path, say: Callable[[str], None]) -> list[Path]:
    """Put the databases of a backup back in their places, after a backup of the present ones; return their paths.

    The caller makes sure that no server runs. Raises BadConfiguration for a folder without a whole backup or a database
    in use, BadData for a damaged copy, before anything changes.
    """
    try:
        names = json.loads((folder / ABOUT).read_text())["files"]
    except (OSError, ValueError, KeyError, TypeError):
        known = ", ".join(f"{backup}" for backup in sorted((root / FOLDER).glob("*"))) or "none"
        raise BadConfiguration(f"{folder} is no whole backup: it has no {ABOUT}; backups here: {known}") from None
    places = {name: root / name for name in FILES if Path(name).name in names}
    if not places:
        raise BadConfiguration(f"{folder} is a backup of PostgreSQL databases: restore it with pg_restore")
    for name in places:
        _check(folder / Path(name).name)
    if any(place.is_file() for place in places.values()):
        before = default_folder(root)
        back_up(root, before)
        say(f"the present databases are kept in {before}")
    put_back(root, folder)
    return list(places.values())


def put_back(root: Path, folder: Path) -> None:
    """Copy the databases of a whole backup over those of ``root``."""
    for name in FILES:
        copy = folder / Path(name).name
        if copy.exists():
            place = root / name
            place.parent.mkdir(parents=True, exist_ok=True)
            _copy(copy, place)


def _copy(source: Path, target: Path) -> None:
    """Copy a database over ``target`` in one transaction. An interrupted copy changes nothing."""
    _check(source)
    try:
        with closing(_open(source)) as reads, closing(sqlite3.connect(target, timeout=LOCK_SECONDS)) as writes:
            reads.backup(writes)
    except sqlite3.OperationalError as error:
        raise BadConfiguration(
            f"{target} cannot be written ({error}); end the runs and servers that use it, or free space"
        ) from error
    _check(target)


def _check(file: Path) -> None:
    """Raise BadData unless the file is a whole database."""
    try:
        with closing(_open(file)) as connection:
            found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    except sqlite3.DatabaseError as error:
        found = f"{error}"
    if found != "ok":
        raise BadData(f"{file} is damaged ({found}); use another backup")


def _open(file: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True, timeout=LOCK_SECONDS)
