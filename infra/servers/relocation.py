"""Rewrites MLflow's absolute artifact addresses after a root was moved or copied.

MLflow's database holds the address of every experiment, run, logged model and version. These addresses show the former
path of the root, so roots of any age can be moved. Imports no heavy library, because every command runs this.
"""

import sqlite3
import sys
from collections.abc import Iterable
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

from infra.servers.mlflow_sqlite import has_known_schema
from infra.servers.sqlite_addresses import BUSY_SECONDS, open_read_only

DATABASE = "mlflow.db"
ARTIFACTS = "mlflow-artifacts"
COLUMNS = (
    ("experiments", "artifact_location"),
    ("runs", "artifact_uri"),
    ("logged_models", "artifact_location"),
    ("model_versions", "source"),
    ("model_versions", "storage_location"),
)


def relocate(root: Path) -> None:
    """Rewrite the addresses in the database of ``root`` that start with a former path of ``root``.

    Takes a millisecond if nothing moved. A database that cannot be read or written, or belongs to another version of
    MLflow, is not changed.
    """
    root = root.absolute()
    file = root / DATABASE
    if not file.exists():
        return
    with suppress(sqlite3.Error):
        with closing(open_read_only(file)) as connection:
            former = _former(connection, root)
            is_known = has_known_schema(connection)
        if former and not is_known:
            print(f"repro: {file} is not of MLflow 3.17: its addresses stay those of another folder", file=sys.stderr)
        elif former:
            # If another process has done it meanwhile, this changes nothing.
            with closing(sqlite3.connect(file, timeout=BUSY_SECONDS)) as connection, connection:
                _rewrite(connection, root, former)


def same_folder(one: Path, other: Path) -> bool:
    """Whether both paths are the same folder, also through links or mounts."""
    try:
        return one == other or one.samefile(other)
    except OSError:
        return False


def _former(connection: sqlite3.Connection, root: Path) -> list[str]:
    """Return the other folders that experiments' addresses below ``mlflow-artifacts`` name."""
    table, column = COLUMNS[0]
    places = set()
    for (address,) in connection.execute(f"SELECT {column} FROM {table} WHERE {column} IS NOT NULL"):
        place, artifacts, name = _path(address).rpartition(f"/{ARTIFACTS}/")
        # An experiment whose files are only there belongs to another root that shares this database.
        is_foreign = Path(_path(address)).exists() and not (root / ARTIFACTS / name).exists()
        if artifacts and place != f"{root}" and not is_foreign:
            places.add(place)
    return sorted(place for place in places if not same_folder(Path(place), root))


def _rewrite(connection: sqlite3.Connection, root: Path, former: Iterable[str]) -> None:
    for place in former:
        before = Path(place) / ARTIFACTS
        now = root / ARTIFACTS
        for table, column in COLUMNS:
            for old, new in ((f"{before}/", f"{now}/"), (f"{before.as_uri()}/", f"{now.as_uri()}/")):
                connection.execute(
                    f"UPDATE {table} SET {column} = ?2 || substr({column}, length(?1) + 1)"
                    f" WHERE substr({column}, 1, length(?1)) = ?1",
                    (old, new),
                )
        # This tag, the machine's name and the path, lets an interrupted training find its run again.
        connection.execute(
            "UPDATE tags SET value = substr(value, 1, length(value) - length(?1)) || ?2"
            " WHERE key = 'place' AND substr(value, -length(?1)) = ?1",
            (f":{before}", f":{now}"),
        )


def _path(address: str) -> str:
    """Return the absolute path of an address on this machine; empty for other addresses."""
    if address.startswith("/"):
        return address
    parts = urlsplit(address)
    return unquote(parts.path) if parts.scheme == "file" and parts.netloc in ("", "localhost") else ""
