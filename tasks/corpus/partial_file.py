"""A download in progress: the bytes written so far, and how they differ from the file in the catalogue."""

import hashlib
import io
from contextlib import suppress
from pathlib import Path
from typing import Any

from infra.guards.address_secrets import public_address
from tasks.corpus.catalogue import File


class PartialFile:
    """The part of ``file`` at ``path``, including what an earlier attempt wrote there."""

    def __init__(self, path: Path, file: File) -> None:
        self.path = path
        self.file = file
        self._stream = path.open("a+b")
        self.size = self._stream.seek(0, io.SEEK_END)

    def append(self, block: bytes) -> None:
        self.size += self._stream.write(block)

    def restart(self) -> None:
        """Delete all bytes."""
        self.size = self._stream.truncate(0)

    def discard(self) -> None:
        """Delete the file."""
        with suppress(OSError):  # buffered bytes that a full disk does not take
            self._stream.close()
        self.path.unlink(missing_ok=True)

    def close(self) -> None:
        self._stream.close()

    @property
    def is_complete(self) -> bool:
        """Whether size and checksum are those of the catalogue."""
        return self.size == (self.file.size or self.size) and self._checksum() == (self.file.sha256 or self.file.md5)

    @property
    def difference(self) -> str:
        """How the file differs from the catalogue's."""
        if self.file.size and self.size > self.file.size:
            return f"more than the expected {self.file.size} bytes"
        found = self._checksum()
        if found == (self.file.sha256 or self.file.md5):
            return f"{self.size} bytes instead of {self.file.size}"
        return f"{'sha256' if self.file.sha256 else 'md5'} {found}, {self.size} bytes"

    def facts(self, origin: str) -> dict[str, Any]:
        """The facts of a complete file."""
        sha256 = self.file.sha256 or self._sum("sha256")
        return {"bytes": self.size, "sha256": sha256, "origin": public_address(origin)}

    def _checksum(self) -> str:
        return self._sum("sha256" if self.file.sha256 else "md5")

    def _sum(self, kind: str) -> str:
        self._stream.seek(0)
        return hashlib.file_digest(self._stream, lambda: hashlib.new(kind, usedforsecurity=False)).hexdigest()
