"""Text files to aligned lines: plain, compressed, inside a tar archive, or WMT's SGM.

In come paths, out go frames of ``source`` and ``target`` in file order. Lines end at ``\\n`` only (a ``\\r`` before it
goes too): the official files hold U+0085, U+2028 and the like inside lines, and readers that break there lose the
alignment. Bytes that are no UTF-8 become U+FFFD, so that a filter can reject the line and the others keep their number.
Memory does not grow with the files.
"""

import bz2
import gzip
import lzma
import re
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, cast

import polars as pl

from infra.faults import BadData

BLOCK = 4 << 20
"""Bytes read and decoded at once."""
ROWS = 200_000
"""Pairs a frame."""

_SEGMENT = re.compile(r"<seg\b[^>]*>(.*)</seg>", re.IGNORECASE)
_BROKEN = (EOFError, OSError, zlib.error, lzma.LZMAError, tarfile.TarError)


def lines(path: Path, member: str = "") -> Iterator[list[str]]:
    """The lines of a file, or of one member of a tar archive, in lists of any length, without their line ends.

    ``.gz``, ``.xz``, ``.bz2`` are decompressed and ``.sgm`` gives the text of its segments, stripped but with its
    entities as they are (as sacreBLEU reads it). Raises BadData naming the file when it is cut short, damaged, UTF-16,
    or lacks the member.
    """
    told = f"{path.name}, member {member}" if member else path.name
    with ExitStack() as stack:
        try:
            stream = _decompressed(_opened(path, member, stack), member or path.name, stack)
            blocks = _decoded(stream, told)
            yield from (_segments(blocks, told) if _is_sgm(member or path.name) else blocks)
        except FileNotFoundError as error:
            raise BadData(f"{path} does not exist") from error
        except _BROKEN as error:
            raise BadData(f"{told} is cut short or damaged ({error})") from error


def pairs(
    source: Path, target: Path, source_member: str = "", target_member: str = "", rows: int = ROWS
) -> Iterator[pl.DataFrame]:
    """Frames of at most ``rows`` aligned lines, columns ``source`` and ``target``.

    Raises BadData with both numbers when one side has more lines than the other.
    """
    sides = lines(source, source_member), lines(target, target_member)
    held: tuple[list[str], list[str]] = [], []
    read = [0, 0]
    while True:
        for side in (0, 1):
            while len(held[side]) < rows and (block := next(sides[side], None)) is not None:
                held[side].extend(block)
                read[side] += len(block)
        count = min(len(held[0]), len(held[1]), rows)
        if len(held[0]) != len(held[1]) and count < rows:
            for side in (0, 1):
                read[side] += sum(len(block) for block in sides[side])
            named = [
                f"{path.name}{':' * bool(inner)}{inner}"
                for path, inner in ((source, source_member), (target, target_member))
            ]
            raise BadData(
                f"{named[0]} has {read[0]} lines and {named[1]} has {read[1]}: line n of one must translate line n "
                "of the other"
            )
        if not count:
            return
        schema = {"source": pl.String, "target": pl.String}
        yield pl.DataFrame({"source": held[0][:count], "target": held[1][:count]}, schema=schema)
        for side in (0, 1):
            del held[side][:count]


def _is_sgm(name: str) -> bool:
    return re.sub(r"\.(gz|xz|bz2)$", "", name).endswith((".sgm", ".sgml"))


def _opened(path: Path, member: str, stack: ExitStack) -> IO[bytes]:
    if not member:
        return stack.enter_context(path.open("rb"))
    # A stream is read once from front to back: nothing is unpacked on the disk, nothing is kept in memory.
    archive = stack.enter_context(tarfile.open(path, "r|*"))  # noqa: SIM115
    seen = []
    for entry in archive:
        name = entry.name.removeprefix("./")
        if name == member and entry.isfile():
            return stack.enter_context(cast(IO[bytes], archive.extractfile(entry)))
        seen.append(name)
    raise BadData(f"{path.name} has no member {member}; it has {', '.join(seen[:20]) or 'none'}")


def _decompressed(stream: IO[bytes], name: str, stack: ExitStack) -> IO[bytes]:
    if name.endswith(".gz"):
        return cast(IO[bytes], stack.enter_context(gzip.GzipFile(fileobj=stream)))
    if name.endswith(".xz"):
        return stack.enter_context(lzma.open(stream))
    if name.endswith(".bz2"):
        return stack.enter_context(bz2.open(stream))
    return stream


def _decoded(stream: IO[bytes], told: str) -> Iterator[list[str]]:
    """Whole lines of each block; a block is cut at its last line end, so no character is ever cut."""
    block = stream.read(BLOCK)
    if block.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise BadData(f"{told} is UTF-16; convert it to UTF-8")
    block = block.removeprefix(b"\xef\xbb\xbf")
    unfinished: list[bytes] = []
    while block:
        end = block.rfind(b"\n")
        if end >= 0:
            yield _split(b"".join((*unfinished, block[:end])))
            unfinished = []
        unfinished.append(block[end + 1 :])
        block = stream.read(BLOCK)
    if last := b"".join(unfinished):
        yield _split(last)


def _split(block: bytes) -> list[str]:
    text = block.decode("utf-8", "replace")
    if "\r" in text:
        return [line.removesuffix("\r") for line in text.split("\n")]
    return text.split("\n")


def _segments(blocks: Iterator[list[str]], told: str) -> Iterator[list[str]]:
    for block in blocks:
        found = []
        for line in block:
            if match := _SEGMENT.search(line):
                found.append(match.group(1).strip())
            elif "<seg" in line.lower():
                raise BadData(f"{told} has a segment that does not end on its line: {line.strip()[:80]}")
        yield found
