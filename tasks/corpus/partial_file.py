"""A download in progress: the bytes written so far and their checksums."""

import hashlib
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from infra.fetch import BLOCK
from infra.guards.address_secrets import public_address
from tasks.corpus.catalogue import File


class PartialFile:
    """The part of ``file`` at ``path``, including what an earlier attempt wrote there."""

    def __init__(self, path: Path, file: File) -> None:
        self.path = path
        self.file = file
        self._stream: IO[bytes] = path.open("a+b")
        self._reset()
        self._stream.seek(0)
        while block := self._stream.read(BLOCK):
            self._update(block)

    def append(self, block: bytes) -> None:
        self._stream.write(block)
        self._update(block)

    def restart(self) -> None:
        """Drop all bytes."""
        self._stream.truncate(0)
        self._reset()

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
        right_size = self.size == self.file.size or not self.file.size
        return right_size and self._checksum() == (self.file.sha256 or self.file.md5)

    @property
    def difference(self) -> str:
        """How the file differs from the catalogue's."""
        if self.file.size and self.size > self.file.size:
            return f"more than the expected {self.file.size} bytes"
        if self._checksum() == (self.file.sha256 or self.file.md5):
            return f"{self.size} bytes instead of {self.file.size}"
        return f"{'sha256' if self.file.sha256 else 'md5'} {self._checksum()}, {self.size} bytes"

    def facts(self, origin: str) -> dict[str, Any]:
        return {"bytes": self.size, "sha256": self._sha256.hexdigest(), "origin": public_address(origin)}

    def _reset(self) -> None:
        self.size = 0
        self._sha256 = hashlib.sha256()
        self._md5 = hashlib.md5(usedforsecurity=False)

    def _update(self, block: bytes) -> None:
        self.size += len(block)
        self._sha256.update(block)
        if not self.file.sha256:
            self._md5.update(block)

    def _checksum(self) -> str:
        return (self._sha256 if self.file.sha256 else self._md5).hexdigest()
