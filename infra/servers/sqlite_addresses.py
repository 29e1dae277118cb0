"""Addresses of SQLite files, as SQLAlchemy reads them: to and from paths."""

from pathlib import Path
from urllib.parse import quote, unquote


def sqlite_uri(file: Path, driver: str = "sqlite") -> str:
    """SQLAlchemy's address of a file.

    In it ``%`` and ``?`` would mean something else than themselves. Where one is escaped, slashes are as well: MLflow
    creates the folders of what it takes for a path without unescaping it.
    """
    path = f"{file.absolute()}"
    return f"{driver}:///{quote(path, safe='') if needs_quoting(path) else path}"


def needs_quoting(path: str) -> bool:
    """Whether SQLAlchemy would read another path out of an address that holds ``path`` as it is."""
    return "%" in path or "?" in path


def sqlite_file(uri: str) -> Path | None:
    """The file of a ``sqlite:///`` address."""
    return Path(unquote(uri.removeprefix("sqlite:///").partition("?")[0])) if uri.startswith("sqlite:///") else None
