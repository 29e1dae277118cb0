"""Files on a disk: checksums, stamps that show whether a file changed, atomic and durable writes."""

import contextlib
import errno
import hashlib
import json
import os
import shutil
import stat
import uuid
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from infra.errors import AWAY, BadConfiguration, fault_of_disk
from infra.guards.path_names import is_plain_name


def user_cache(name: str) -> Path:
    """Return the user's cache folder ``name``, for files that can be downloaded or made again.

    Raises BadConfiguration for a user without a home folder.
    """
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "repro" / name
    except RuntimeError as error:
        raise BadConfiguration(
            "this user has no home folder for a cache: set HOME or XDG_CACHE_HOME, or for a bucket REPRO_CACHE"
        ) from error


def expanded(path: str) -> Path:
    """Return ``path`` with ``~`` replaced by the home folder. Raises BadConfiguration for a user without one."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise BadConfiguration(f"{path!r} begins with the home folder of a user who has none: set HOME") from error


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def stamp_of(path: Path) -> list[int]:
    """Return size in bytes, modification time in nanoseconds, and inode."""
    status = path.stat()
    return [status.st_size, status.st_mtime_ns, status.st_ino]


def files_below(folder: Path) -> Iterator[Path]:
    """Yield the files in a folder and its subfolders. Others may remove them meanwhile; ``Path.rglob`` would raise."""
    for place, _, names in os.walk(folder):
        for name in names:
            yield Path(place, name)


def is_regular(path: Path) -> bool:
    """Whether ``path`` is a regular file. Opening a named pipe instead would wait for its writer forever."""
    return stat.S_ISREG(path.stat().st_mode)


def unlisted_names(folder: Path, listed: Collection[str]) -> list[str]:
    """Return the names below ``folder`` that ``listed`` lacks, without what is inside an unlisted folder."""
    parents = {parent.as_posix() for name in listed for parent in Path(name).parents}
    found = []
    for place, folders, files in os.walk(folder):
        here = Path(place).relative_to(folder)
        for name in [*files, *folders]:
            relative = (here / name).as_posix()
            is_folder = name in folders and not (folder / relative).is_symlink()
            if relative not in (parents if is_folder else listed):
                found.append(relative)
        folders[:] = [name for name in folders if (here / name).as_posix() in parents]
    return sorted(found)


OF_SERVERS = {"prefect", "service"}
"""Folders of a root in which servers keep what is theirs."""


def names_by_stage(root: Path, only: str = "") -> Iterator[tuple[str, list[str]]]:
    """Yield each folder of ``root`` (or ``only`` one) and the names of its entries, sorted by folder.

    Skips folders that only their user may read: those of the servers, and a disk's lost+found.
    """
    folders = os.scandir(root) if root.is_dir() else ()
    names = {each.name for each in folders if is_plain_name(each.name) and each.is_dir()}
    for stage in sorted(name for name in names - OF_SERVERS if only in ("", name)):
        yield stage, os.listdir(f"{root}/{stage}")  # noqa: PTH208 - with Path, 100,000 names take half a second more


def link_or_copy(source: Path | str, target: Path | str) -> None:
    """Give a file a second name; copy it on a disk without links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def write_atomically(path: Path, text: str) -> None:
    """Write a temporary file and rename it: a reader sees the old text or the new text, also after a crash."""
    temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        write_durably(temporary, text)
        temporary.replace(path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename = f"{path}"  # nobody knows the other name
        raise


def write_durably(path: Path, text: str) -> None:
    """Write a file and wait until it is on the disk."""
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def sync_tree(folder: Path) -> None:
    """Wait until a folder and everything below it are on the disk."""
    for place, _, files in os.walk(folder, topdown=False):
        for name in files:
            sync(Path(place) / name)
        sync(Path(place))


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_stamps(file: Path, stamps: Mapping[str, list[int]]) -> None:
    with contextlib.suppress(OSError):  # without stamps the next run only hashes again
        write_atomically(file, json.dumps(stamps))


def folder_damage(
    folder: Path, files: Mapping[str, Mapping[str, Any]], stamp_file: Path, *, every_byte: bool = False
) -> str:
    """Return the first damage to files with these checksums, or "".

    Hashing a file writes its stamp to ``stamp_file``. A file with an unchanged stamp is not hashed again, unless
    ``every_byte`` is set.
    """
    stamps: object = {}
    if not every_byte:
        with contextlib.suppress(OSError, ValueError):
            stamps = json.loads(stamp_file.read_text())
    known = stamps if isinstance(stamps, dict) else {}
    fresh: dict[str, list[int]] = {}
    for name, expected in files.items():
        with contextlib.suppress(OSError):  # file_damage says what is wrong
            fresh[name] = stamp_of(folder / name)
        is_known = name in fresh and known.get(name) == fresh[name]
        if not is_known and (damage := file_damage(folder, name, expected)):
            return damage
    if fresh != stamps:
        write_stamps(stamp_file, fresh)
    return ""


def file_damage(folder: Path, name: str, expected: Mapping[str, Any]) -> str:
    """Hash a file of an artifact and return its damage, or "". Raises DiskFault for an absent disk."""
    try:
        if not is_regular(folder / name):
            return f"{name} is not a regular file"
        if (size := (folder / name).stat().st_size) != expected["bytes"]:
            return f"{name} has {size} bytes, not {expected['bytes']}"
        return "" if sha256_of(folder / name) == expected["sha256"] else f"{name} was altered"
    except OSError as error:
        raise_unless_damage(error, folder)
        return f"{name} cannot be read ({error.strerror})"


def raise_unless_damage(error: OSError, folder: Path) -> None:
    """Raise an error that says nothing about a file: DiskFault for an absent disk, OSError for want of resources."""
    if error.errno in AWAY and (fault := fault_of_disk(error, folder)):
        raise fault from error
    if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
        raise error
