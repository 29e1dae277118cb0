"""Convert between paths and SQLAlchemy's addresses of SQLite files."""

from pathlib import Path
from urllib.parse import quote, unquote


def sqlite_uri(file: Path, driver: str = "sqlite") -> str:
    """SQLAlchemy's address of a file.

    ``%`` and ``?`` have a meaning there and are escaped. In such a path slashes are escaped too, because MLflow would
    create the folders of the escaped path.
    """
    path = f"{file.absolute()}"
    return f"{driver}:///{quote(path, safe='') if needs_quoting(path) else path}"


def needs_quoting(path: str) -> bool:
    """Whether SQLAlchemy would read a different path from an address with the unescaped ``path``."""
    return "%" in path or "?" in path


def sqlite_file(uri: str) -> Path | None:
    """The file of a ``sqlite:///`` address."""
    return Path(unquote(uri.removeprefix("sqlite:///").partition("?")[0])) if uri.startswith("sqlite:///") else None
