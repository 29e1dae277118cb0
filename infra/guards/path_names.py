"""Turns a name from outside into a path below a folder, or refuses it; turns a user's name into a file name.

Names from outside come from a bucket, a manifest, an archive, a record, a registry or an index that another program
wrote. Only this module joins such a name to a folder.
"""

import hashlib
import re
from pathlib import Path

from infra.errors import BadData

MOST_BYTES = 200
"""Longest part of a name in bytes. File systems allow 255, but a file has a suffix while it is written."""
FORM = "a relative path of printable characters without an empty part, '.', '..' or a backslash, as in a/b.txt"
_PLAIN = re.compile(r"[A-Za-z0-9_-]+")
LONGEST_PLAIN = 100
LONGEST_READABLE = 80


def is_path_name(name: str) -> bool:
    r"""Whether ``name`` is a relative path that stays below its folder: ``a/b.txt``, not ``../a``, ``/a``, ``a\b``."""
    if "\\" in name or not name.isprintable():
        return False
    return all(part not in ("", ".", "..") and len(part.encode()) <= MOST_BYTES for part in name.split("/"))


def is_plain_name(name: object) -> bool:
    """Whether ``name`` is one word of ASCII letters, digits, ``_`` and ``-``, like stages, keys and ids."""
    return isinstance(name, str) and len(name) <= MOST_BYTES and _PLAIN.fullmatch(name) is not None


def is_artifact_name(name: object) -> bool:
    """Whether ``name`` has the form ``stage/key``."""
    parts = name.split("/") if isinstance(name, str) else []
    return len(parts) == 2 and all(map(is_plain_name, parts))


def path_below(folder: Path, name: str) -> Path:
    """Return the path ``name`` below ``folder``. Raises BadData for a name that could lead out of the folder."""
    if not is_path_name(name):
        raise BadData(f"{name!r} is no name of a file below {folder}, allowed is {FORM}")
    return folder / name


def file_name(name: str) -> str:
    """Return the name of a run or model, or its readable part with a digest if file systems may not accept it.

    The digest gives each name its own file: ``Größe`` and ``Grüße`` would share one without it.
    """
    if is_plain_name(name) and len(name) <= LONGEST_PLAIN:
        return name
    readable = re.sub(r"[^A-Za-z0-9_-]+", "-", name)[:LONGEST_READABLE]
    return f"{readable}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
