"""Paths and SQLAlchemy's addresses of SQLite files, and connections that only read."""

import sqlite3
from pathlib import Path
from urllib.parse import quote, unquote

BUSY_SECONDS = 60


def sqlite_uri(file: Path, driver: str = "sqlite") -> str:
    """SQLAlchemy's address of a file.

    A path with ``%`` or ``?`` becomes one of SQLite's own addresses (``file:...?uri=true``), which SQLAlchemy passes
    on. In it slashes are escaped too, because MLflow would create the folders of the escaped path.
    """
    path = f"{file.absolute()}"
    return f"{driver}:///" + (f"file:{quote(path, safe='')}?uri=true" if needs_quoting(path) else path)


def needs_quoting(path: str) -> bool:
    """Whether an address with the unescaped ``path`` may be read as one of another file."""
    return "%" in path or "?" in path


def sqlite_file(uri: str) -> Path | None:
    """The file of a ``sqlite:///`` address."""
    if not uri.startswith("sqlite:///"):
        return None
    path = uri.removeprefix("sqlite:///").partition("?")[0]
    return Path(unquote(path.removeprefix("file:")) if path.startswith("file:") else path)


def open_read_only(file: Path) -> sqlite3.Connection:
    """A connection that waits for writers. Raises sqlite3.OperationalError if there is no such file."""
    return sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True, timeout=BUSY_SECONDS)
