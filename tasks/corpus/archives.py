"""From a path to a stream of the bytes that a text is made of: decompressed, out of an archive, within bounds.

Nothing is unpacked on the disk, so no member can be written anywhere; an archive that tries is refused all the same.
What the bytes mean is not known here.
"""

import bz2
import gzip
import io
import lzma
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Protocol, cast

import pyarrow as pa

from infra.errors import BadData
from tasks.corpus.catalogue import ARCHIVES

MAX_EXPANSION = 100
"""A file gives at most so many times its own size; text gives up to ten."""
ALWAYS_ALLOWED_BYTES = 256 << 20
"""Bytes that any file may give, however small it is."""

BROKEN = (EOFError, OSError, zlib.error, lzma.LZMAError, tarfile.TarError, pa.ArrowException)


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class _Bounded(io.RawIOBase):
    """A stream that may give so many bytes and no more."""

    def __init__(self, stream: _Readable, most: int, told: str) -> None:
        self._stream, self._left, self._told, self._most = stream, most, told, most

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        block = self._stream.read(len(buffer))
        self._left -= len(block)
        if self._left < 0:
            raise BadData(f"{self._told} unpacks to more than {self._most:,} bytes: it is taken for a bomb and refused")
        buffer[: len(block)] = block
        return len(block)


def open_text(path: Path, member: str, stack: ExitStack) -> io.BufferedReader:
    """The decompressed bytes of a file, or of one member of a tar archive, read once from front to back."""
    if not member and path.name.endswith(ARCHIVES):
        raise BadData(f"{path.name} is an archive: name the member that is the text")
    file = stack.enter_context(path.open("rb"))
    most = max(ALWAYS_ALLOWED_BYTES, MAX_EXPANSION * path.stat().st_size)
    if not member:
        return _decompressed(file, _suffix(path.name), most, path.name, stack)
    archive = _decompressed(file, _compression(file), most, path.name, stack)
    inner = _member(archive, member, path.name, stack)
    return _decompressed(inner, _suffix(member), most, f"{path.name}, member {member}", stack)


@contextmanager
def read_errors_named(path: Path, told: str) -> Iterator[None]:
    """Whatever is wrong with a file, in one sentence."""
    try:
        yield
    except FileNotFoundError as error:
        raise BadData(f"{path} does not exist") from error
    except (IsADirectoryError, PermissionError) as error:
        raise BadData(f"{path} cannot be read ({error.strerror})") from error
    except BROKEN as error:
        words = " ".join(f"{error}".split())
        raise BadData(f"{told} is cut short or damaged ({words or type(error).__name__})") from error


def _member(archive: IO[bytes], member: str, told: str, stack: ExitStack) -> IO[bytes]:
    tar = stack.enter_context(tarfile.open(fileobj=archive, mode="r|"))  # noqa: SIM115
    seen = []
    for entry in tar:
        name = entry.name.removeprefix("./")
        if name.startswith("/") or ".." in name.split("/"):
            raise BadData(f"{told} holds {entry.name!r}, which leads out of it: the archive is refused")
        if name == member:
            if not entry.isreg() or entry.issparse():
                raise BadData(f"{told}, member {member} is a link, a folder or no plain file: it is refused")
            return cast(IO[bytes], tar.extractfile(entry))
        seen.append(name)
    raise BadData(f"{told} has no member {member}; it has {', '.join(seen[:20]) or 'none'}")


def _zstd(stream: IO[bytes]) -> _Readable:
    return cast(_Readable, pa.CompressedInputStream(pa.PythonFile(stream, mode="r"), "zstd"))


DECOMPRESSORS: dict[str, Callable[[IO[bytes]], _Readable]] = {
    ".gz": lambda stream: gzip.GzipFile(fileobj=stream),
    ".xz": lzma.open,
    ".bz2": bz2.open,
    ".zst": _zstd,
}
MAGIC = {b"\x1f\x8b": ".gz", b"\xfd7zXZ": ".xz", b"BZh": ".bz2", b"\x28\xb5\x2f\xfd": ".zst"}


def _suffix(name: str) -> str:
    return next((suffix for suffix in DECOMPRESSORS if name.endswith(suffix)), "")


def _compression(file: IO[bytes]) -> str:
    begin = file.read(8)
    file.seek(0)
    return next((suffix for magic, suffix in MAGIC.items() if begin.startswith(magic)), "")


def _decompressed(stream: IO[bytes], suffix: str, most: int, told: str, stack: ExitStack) -> io.BufferedReader:
    if not suffix:
        return io.BufferedReader(cast(io.RawIOBase, stream)) if not isinstance(stream, io.BufferedReader) else stream
    bounded = _Bounded(DECOMPRESSORS[suffix](stream), most, told)
    return stack.enter_context(io.BufferedReader(bounded, 1 << 18))
