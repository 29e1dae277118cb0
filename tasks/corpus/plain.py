"""Splits bytes into lines: plain text, and WMT's SGM.

Lines end at ``\\n`` or ``\\r\\n`` only: the official files contain U+0085, U+2028 and the like inside lines, and
splitting there loses the alignment. Invalid UTF-8 becomes U+FFFD, so that a filter can reject the line and the others
keep their numbers.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator

from infra.errors import BadData
from tasks.lazy_libraries import np, pa, pl

BLOCK = 1 << 22
"""Bytes read and decoded at once."""
BEGIN = 4096
"""Bytes that determine whether a file is UTF-16."""
LONGEST = 64 << 20
"""Bytes of the longest line; a longer one is no text and would fill the memory."""

_SEGMENT_TAG = re.compile(r"<seg\b|</seg>", re.IGNORECASE)


def refuse_utf16(stream: io.BufferedReader, label: str) -> None:
    """Raise BadData if a byte order mark or many zero bytes indicate UTF-16."""
    begin = stream.peek(BEGIN)[:BEGIN]
    if begin[:2] in (b"\xff\xfe", b"\xfe\xff") or begin.count(0) > max(16, len(begin) // 4):
        raise BadData(f"{label} is UTF-16; convert it to UTF-8")


def decoded(stream: io.BufferedReader, label: str) -> Iterator[pl.Series]:
    """The lines of each block. A block is cut after its last line end, so that no character is split."""
    block = stream.read(BLOCK).removeprefix(b"\xef\xbb\xbf")
    unfinished: list[bytes] = []
    count = 0
    while block:
        end = block.rfind(b"\n")
        if end >= 0:
            found = _split(b"".join((*unfinished, memoryview(block)[:end])))
            count += len(found)
            yield found
            unfinished = []
        unfinished.append(block[end + 1 :])
        if sum(map(len, unfinished)) > LONGEST:
            raise BadData(f"{label} has a line {count + 1} of more than {LONGEST:,} bytes: that is no text")
        block = stream.read(BLOCK)
    if last := b"".join(unfinished):
        yield _split(last)


def segments(blocks: Iterable[list[str]], label: str) -> Iterator[list[str]]:
    """The text of each ``<seg>``, searched as text because SGM files are often not well-formed XML."""
    for block in blocks:
        yield [text for line in block for text in _segments(line, label)]


def _segments(line: str, label: str) -> Iterator[str]:
    """The segments of a line. A segment ends at the last ``</seg>`` before the next segment or the line's end."""
    begin = end = -1
    for tag in _SEGMENT_TAG.finditer(line):
        if tag[0].startswith("</"):
            end = tag.start()
        elif begin < 0 or end >= begin:
            if begin >= 0:
                yield line[begin:end].strip()
            begin = line.find(">", tag.end()) + 1
            if not begin:
                break
    if begin >= 0:
        if not begin or end < begin:
            raise BadData(f"{label} has a segment that does not end on its line: {line.strip()[:80]}")
        yield line[begin:end].strip()


def _split(text: bytes) -> pl.Series:
    """The lines of a block. They refer to its bytes, without a Python object for each."""
    ends = np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n"))
    offsets = np.concatenate(([0], ends + 1, [len(text)]))
    lines = pa.LargeStringArray.from_buffers(len(ends) + 1, pa.py_buffer(offsets), pa.py_buffer(text))
    try:
        lines.validate(full=True)
    except pa.ArrowInvalid:
        return _split(text.decode("utf-8", "replace").encode())
    found = pl.Series(pl.from_arrow(lines)).str.strip_suffix("\n")
    return found.str.strip_suffix("\r") if b"\r" in text else found
