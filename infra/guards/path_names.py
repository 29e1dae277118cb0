"""Turns a name from outside into a path below a folder, or refuses it; turns one that people chose into a file's.

Names from outside are those in a bucket, a manifest, an archive, a record, a registry or an index that another program
wrote. Nothing else joins such a name to a folder.
"""

import hashlib
import re
from pathlib import Path

from infra.errors import BadData

MOST_BYTES = 200
"""Longest part of a name. File systems allow 255; a name gets a suffix while its file is being written."""
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
    """Whether ``name`` is one word of ASCII letters, digits, ``_`` and ``-``, as stages, keys and ids are."""
    return isinstance(name, str) and len(name) <= MOST_BYTES and _PLAIN.fullmatch(name) is not None


def is_artifact_name(name: object) -> bool:
    """Whether ``name`` is a stage and a key with a slash between them."""
    parts = name.split("/") if isinstance(name, str) else []
    return len(parts) == 2 and all(map(is_plain_name, parts))


def path_below(folder: Path, name: str) -> Path:
    """The path ``name`` below ``folder``. Raises BadData for a name that could lead out of it."""
    if not is_path_name(name):
        raise BadData(f"{name!r} is no name of a file below {folder}, allowed is {FORM}")
    return folder / name


def file_name(name: str) -> str:
    """The name of a run or a model where any file system takes it, else its readable part with a digest of the whole.

    So no two names share a file, as ``Größe`` and ``Grüße`` would without the digest.
    """
    if is_plain_name(name) and len(name) <= LONGEST_PLAIN:
        return name
    readable = re.sub(r"[^A-Za-z0-9_-]+", "-", name)[:LONGEST_READABLE]
    return f"{readable}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
