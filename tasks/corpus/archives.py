"""Opens a file, or a member of a tar archive, as a stream of decompressed bytes of bounded size.

Nothing is unpacked to disk, so no member can escape to another folder; an archive that tries this is refused.
"""

from __future__ import annotations

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

from infra.errors import BadData, fault_of_disk
from infra.guards.path_names import is_path_name
from tasks.corpus.catalogue import ARCHIVES
from tasks.lazy_libraries import pa

MAX_EXPANSION = 100
"""Largest ratio of decompressed to compressed size; text reaches about ten."""
ALWAYS_ALLOWED_BYTES = 256 << 20
"""Decompressed bytes that a file of any size may have."""

BROKEN = (EOFError, OSError, zlib.error, lzma.LZMAError, tarfile.TarError)


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class _Bounded(io.RawIOBase):
    """A stream that raises BadData after ``limit`` bytes."""

    def __init__(self, stream: _Readable, limit: int, label: str) -> None:
        self._stream = stream
        self._left = self._limit = limit
        self._label = label

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        block = self._stream.read(len(buffer))
        self._left -= len(block)
        if self._left < 0:
            raise BadData(f"{self._label} unpacks to more than {self._limit:,} bytes: refused as a decompression bomb")
        buffer[: len(block)] = block
        return len(block)


def open_text(path: Path, member: str, stack: ExitStack) -> io.BufferedReader:
    """The decompressed bytes of a file, or of one member of a tar archive, read once from front to back."""
    if path.name.lower().endswith((".zip", ".7z", ".rar")):
        raise BadData(f"{path.name} is no tar archive: unpack it and name the file of text")
    if not member and path.name.lower().endswith(ARCHIVES):
        raise BadData(f"{path.name} is an archive: name the member that is the text")
    file = stack.enter_context(path.open("rb"))
    limit = max(ALWAYS_ALLOWED_BYTES, MAX_EXPANSION * path.stat().st_size)
    if not member:
        return _decompressed(file, _suffix(path.name) or _compression(file), limit, path.name, stack)
    archive = _decompressed(file, _compression(file), limit, path.name, stack)
    inner = _member(archive, member, path.name, stack)
    return _decompressed(inner, _suffix(member), limit, f"{path.name}, member {member}", stack)


@contextmanager
def read_errors_named(path: Path, label: str) -> Iterator[None]:
    """Turn every error of reading ``path`` into BadData with one sentence, and an absent disk into DiskFault."""
    try:
        yield
    except FileNotFoundError as error:
        raise BadData(f"{path} does not exist") from error
    except (IsADirectoryError, PermissionError) as error:
        raise BadData(f"{path} cannot be read ({error.strerror})") from error
    except (*BROKEN, pa.ArrowException, UnicodeDecodeError) as error:  # names of columns may be damaged
        if isinstance(error, OSError) and (fault := fault_of_disk(error, path)):
            raise fault from error
        reason = " ".join(f"{error}".split())
        raise BadData(f"{label} is cut short or damaged ({reason or type(error).__name__})") from error


def _member(archive: IO[bytes], member: str, label: str, stack: ExitStack) -> IO[bytes]:
    tar = stack.enter_context(tarfile.open(fileobj=archive, mode="r|"))  # noqa: SIM115
    seen = []
    for entry in tar:
        name = entry.name.removeprefix("./")
        if name != "." and not is_path_name(name):  # "." is the folder that was packed
            raise BadData(f"{label} holds {entry.name!r}, which is no path below it: the archive is refused")
        if name == member:
            if not entry.isreg() or entry.issparse():
                raise BadData(f"{label}, member {member} is a link, a folder or no plain file: it is refused")
            return cast(IO[bytes], tar.extractfile(entry))
        seen.append(name)
    raise BadData(f"{label} has no member {member}; it has {', '.join(seen[:20]) or 'none'}")


_Decoder = lzma.LZMADecompressor | bz2.BZ2Decompressor


class _Streams:
    """Reads every compressed stream of a file; ``lzma.open`` and ``bz2.open`` end at a damaged one or after padding."""

    def __init__(self, stream: IO[bytes], new_decoder: Callable[[], _Decoder]) -> None:
        self._stream = stream
        self._new_decoder = new_decoder
        self._input = b""
        self._decoder: _Decoder | None = new_decoder()

    def read(self, size: int, /) -> bytes:
        while True:
            if self._decoder is None and not self._find_next_stream():
                return b""
            self._decoder = self._decoder or self._new_decoder()
            if not self._input and self._decoder.needs_input:
                self._input = self._stream.read(1 << 16)
                if not self._input:
                    raise EOFError("it ends before its end-of-stream marker")
            data = self._decoder.decompress(self._input, size)
            self._input = b""
            if self._decoder.eof:
                self._input = self._decoder.unused_data
                self._decoder = None
            if data:
                return data

    def _find_next_stream(self) -> bool:
        """Skip the zeros that may pad a stream; False at the end of the file."""
        self._input = self._input.lstrip(b"\0")
        while not self._input and (block := self._stream.read(1 << 16)):
            self._input = block.lstrip(b"\0")
        return bool(self._input)


DECOMPRESSORS: dict[str, Callable[[IO[bytes]], _Readable]] = {
    ".gz": lambda stream: gzip.GzipFile(fileobj=stream),
    ".xz": lambda stream: _Streams(stream, lzma.LZMADecompressor),
    ".bz2": lambda stream: _Streams(stream, bz2.BZ2Decompressor),
    ".zst": lambda stream: cast(_Readable, pa.CompressedInputStream(pa.PythonFile(stream, mode="r"), "zstd")),
}
MAGIC = {b"\x1f\x8b": ".gz", b"\xfd7zXZ": ".xz", b"BZh": ".bz2", b"\x28\xb5\x2f\xfd": ".zst"}


def _suffix(name: str) -> str:
    return next((suffix for suffix in DECOMPRESSORS if name.lower().endswith(suffix)), "")


def _compression(file: IO[bytes]) -> str:
    begin = file.read(8)
    file.seek(0)
    return next((suffix for magic, suffix in MAGIC.items() if begin.startswith(magic)), "")


def _decompressed(stream: IO[bytes], suffix: str, limit: int, label: str, stack: ExitStack) -> io.BufferedReader:
    if not suffix:
        return cast(io.BufferedReader, stream)  # an opened file, or a member of an archive
    bounded = _Bounded(DECOMPRESSORS[suffix](stream), limit, label)
    return stack.enter_context(io.BufferedReader(bounded, 1 << 18))
