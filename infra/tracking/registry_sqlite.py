"""The registry's tables in a SQLite file, read without MLflow: opening it takes seconds, and so do a thousand versions,
since every tag of theirs becomes an object. Read only; the tables are those of the MLflow that is pinned."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

BUSY_TIMEOUT_SECONDS = 60
DELETED = "Deleted_Internal"


@dataclass(frozen=True)
class VersionRow:
    """A model version as it is stored."""

    name: str
    version: int
    creation_timestamp: int
    """Milliseconds since 1970."""
    run_id: str | None
    source: str | None
    tags: dict[str, str] = field(default_factory=dict)
    aliases: list[str] = field(default_factory=list)


def read_versions(file: Path, name: str = "") -> list[VersionRow]:
    """All versions, or those of one model. Raises sqlite3.Error where the tables are others, or not there yet."""
    which, values = ("AND name = ?", (name,)) if name else ("", ())
    listed = f"SELECT name, version, creation_time, run_id, source FROM model_versions WHERE current_stage != ? {which}"
    with _open_read_only(file) as connection:
        found = {(row[0], row[1]): VersionRow(*row) for row in connection.execute(listed, (DELETED, *values))}
        for table, column in (("model_version_tags", "key"), ("registered_model_aliases", "alias")):
            value = "value" if column == "key" else "''"
            question = f"SELECT name, version, {column}, {value} FROM {table} WHERE 1 {which}"
            for model, version, word, text in connection.execute(question, values):
                row = found.get((model, version))
                if row and column == "key":
                    row.tags[word] = text or ""
                elif row:
                    row.aliases.append(word)
    return list(found.values())


def version_exists(file: Path, name: str, version: int, run_id: str) -> bool:
    """Whether that version, made by that run, is there."""
    question = "SELECT current_stage FROM model_versions WHERE name = ? AND version = ? AND run_id = ?"
    try:
        with _open_read_only(file) as connection:
            found = connection.execute(question, (name, version, run_id)).fetchone()
    except sqlite3.DatabaseError:
        return False
    return found is not None and found[0] != DELETED


@contextmanager
def _open_read_only(file: Path) -> Iterator[sqlite3.Connection]:
    """One moment of the file, however many questions are asked."""
    place = f"{file.absolute().as_uri()}?mode=ro"
    with closing(sqlite3.connect(place, uri=True, timeout=BUSY_TIMEOUT_SECONDS, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        yield connection
