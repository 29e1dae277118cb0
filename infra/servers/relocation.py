"""A root that was moved or copied: MLflow's absolute artifact addresses are rewritten to where the root is now.

MLflow keeps the address of every experiment, run, logged model and version in its database. Where the root was before
is read from these addresses themselves, so that every root can be moved, however old. Light: run by every command.
"""

import sqlite3
import sys
from collections.abc import Iterable
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

from infra.servers.mlflow_schema import has_known_schema

DATABASE = "mlflow.db"
ARTIFACTS = "mlflow-artifacts"
PATIENCE_SECONDS = 60
EXPERIMENTS = ("experiments", "artifact_location")
COLUMNS = (
    EXPERIMENTS,
    ("runs", "artifact_uri"),
    ("logged_models", "artifact_location"),
    ("model_versions", "source"),
    ("model_versions", "storage_location"),
)


def relocate(root: Path) -> None:
    """Rewrite the addresses in the database of ``root`` that name an earlier place of it.

    Costs a millisecond where nothing moved. A run or a model whose files are at the earlier place alone keeps its
    address; an experiment never does, as new runs would be written there. A database that cannot be read or written,
    or is of another version of MLflow, is left as it is.
    """
    root = root.absolute()
    file = root / DATABASE
    if not file.exists():
        return
    with suppress(sqlite3.Error):
        with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True, timeout=PATIENCE_SECONDS)) as connection:
            if not _former(connection, root):
                return
            if not has_known_schema(connection):
                print(
                    f"repro: {file} is not of MLflow 3.17: its addresses stay those of another folder", file=sys.stderr
                )
                return
        with closing(sqlite3.connect(file, timeout=PATIENCE_SECONDS, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            _rewrite(connection, root, _former(connection, root))  # another process may have done it by now
            connection.execute("COMMIT")


def same_folder(one: Path, other: Path) -> bool:
    """Whether both paths lead to the same folder, through links or mounts too."""
    try:
        return one == other or one.samefile(other)
    except OSError:
        return False


def _former(connection: sqlite3.Connection, root: Path) -> list[str]:
    """Other folders below whose ``mlflow-artifacts`` the experiments are."""
    table, column = EXPERIMENTS
    found = set()
    for (address,) in connection.execute(f"SELECT {column} FROM {table} WHERE {column} IS NOT NULL"):
        place, artifacts, _ = _path(address).rpartition(f"/{ARTIFACTS}/")
        if artifacts and place != f"{root}":
            found.add(place)
    return sorted(place for place in found if not same_folder(Path(place), root))


def _rewrite(connection: sqlite3.Connection, root: Path, former: Iterable[str]) -> None:
    for place in former:
        before, now = f"{place}/{ARTIFACTS}", f"{root / ARTIFACTS}"
        for table, column in COLUMNS:
            rows = connection.execute(f"SELECT rowid, {column} FROM {table} WHERE {column} IS NOT NULL").fetchall()
            for row, address in rows:
                old = _path(address)
                if not old.startswith(f"{before}/"):
                    continue
                new = f"{now}{old.removeprefix(before)}"
                if (table, column) != EXPERIMENTS and Path(old).exists() and not Path(new).exists():
                    continue
                moved = Path(new).as_uri() if address.startswith("file:") else new
                connection.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (moved, row))
        # By it a training that was cut off is taken up again; the machine's name stands before the path.
        connection.execute(
            "UPDATE tags SET value = substr(value, 1, length(value) - length(?1)) || ?2"
            " WHERE key = 'place' AND substr(value, -length(?1)) = ?1",
            (f":{before}", f":{now}"),
        )


def _path(address: str) -> str:
    """The absolute path of an address on this machine; empty for another kind."""
    if address.startswith("/"):
        return address
    parts = urlsplit(address)
    return unquote(parts.path) if parts.scheme == "file" and parts.netloc in ("", "localhost") else ""
