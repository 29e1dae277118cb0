"""Bytes to lines: plain text, and WMT's SGM.

Lines end at ``\\n`` only (a ``\\r`` before it goes too): the official files hold U+0085, U+2028 and the like inside
lines, and readers that break there lose the alignment. Bytes that are no UTF-8 become U+FFFD, so that a filter can
reject the line and the others keep their number.
"""

import io
import re
from collections.abc import Iterator

from infra.errors import BadData

BLOCK = 4 << 20
"""Bytes read and decoded at once."""
BEGIN = 4096
"""Bytes by which the encoding is judged."""
LONGEST = 64 << 20
"""Bytes of the longest line: what is longer is no text, and would fill the memory."""

_SEGMENT = re.compile(r"<seg\b[^>]*>(.*)</seg>", re.IGNORECASE)


def refuse_utf16(stream: io.BufferedReader, told: str) -> None:
    """Raise BadData where a byte order mark says UTF-16, or the many zeros of its letters do."""
    begin = stream.peek(BEGIN)[:BEGIN]
    if begin[:2] in (b"\xff\xfe", b"\xfe\xff") or begin.count(0) > max(16, len(begin) // 4):
        raise BadData(f"{told} is UTF-16; convert it to UTF-8")


def decoded(stream: io.BufferedReader, told: str) -> Iterator[list[str]]:
    """Whole lines of each block; a block is cut at its last line end, so no character is ever cut."""
    block = stream.read(BLOCK).removeprefix(b"\xef\xbb\xbf")
    unfinished: list[bytes] = []
    held = count = 0
    while block:
        end = block.rfind(b"\n")
        if end >= 0:
            found = _split(b"".join((*unfinished, block[:end])))
            count += len(found)
            yield found
            unfinished, held = [], 0
        unfinished.append(block[end + 1 :])
        held += len(unfinished[-1])
        if held > LONGEST:
            raise BadData(f"{told} has a line {count + 1} of more than {LONGEST:,} bytes: that is no text")
        block = stream.read(BLOCK)
    if last := b"".join(unfinished):
        yield _split(last)


def segments(blocks: Iterator[list[str]], told: str) -> Iterator[list[str]]:
    """The text of each line's ``<seg>``: SGM files are often no well-formed XML."""
    for block in blocks:
        found = []
        for line in block:
            if match := _SEGMENT.search(line):
                found.append(match.group(1).strip())
            elif "<seg" in line.lower():
                raise BadData(f"{told} has a segment that does not end on its line: {line.strip()[:80]}")
        yield found


def _split(block: bytes) -> list[str]:
    text = block.decode("utf-8", "replace")
    if "\r" in text:
        return [line.removesuffix("\r") for line in text.split("\n")]
    return text.split("\n")
