"""Files on a disk: sums, stamps that tell whether a file changed, atomic and durable writes."""

import hashlib
import os
import uuid
from pathlib import Path


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def stamp_of(path: Path) -> list[int]:
    """Size, modification time and inode."""
    status = path.stat()
    return [status.st_size, status.st_mtime_ns, status.st_ino]


def write_atomically(path: Path, text: str) -> None:
    """Write a temporary file and rename it, so that a reader sees the old text or the new one."""
    temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        temporary.write_text(text)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_durably(path: Path, text: str) -> None:
    """Write a file and wait until it is on the disk."""
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
