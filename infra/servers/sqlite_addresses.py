"""Converts between paths and SQLAlchemy's addresses of SQLite files; opens read-only connections."""

import sqlite3
from pathlib import Path
from urllib.parse import quote, unquote

BUSY_SECONDS = 60


def sqlite_uri(file: Path, driver: str = "sqlite") -> str:
    """Return SQLAlchemy's address of a file.

    A path with ``%`` or ``?`` becomes a SQLite address (``file:...?uri=true``), which SQLAlchemy passes on. Its slashes
    are escaped too, because MLflow would create the folders of the escaped path.
    """
    path = f"{file.absolute()}"
    return f"{driver}:///" + (f"file:{quote(path, safe='')}?uri=true" if needs_quoting(path) else path)


def needs_quoting(path: str) -> bool:
    """Whether an address with the unescaped ``path`` may be parsed as another file."""
    return "%" in path or "?" in path


def sqlite_file(uri: str) -> Path | None:
    """Return the file of a ``sqlite:///`` address; None for other addresses."""
    if not uri.startswith("sqlite:///"):
        return None
    path = uri.removeprefix("sqlite:///").partition("?")[0]
    return Path(unquote(path.removeprefix("file:")) if path.startswith("file:") else path)


def open_read_only(file: Path) -> sqlite3.Connection:
    """Open a read-only connection that waits for writers. Raises sqlite3.OperationalError for a missing file."""
    return sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True, timeout=BUSY_SECONDS)
