"""Reads lines from a file or pipe in bounded blocks as soon as they arrive, and writes output files atomically.

Input is any bytes. A line ends with a newline, which the last line may lack.
"""

import codecs
import os
import select
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

from flows.views.terminal import say
from infra.errors import BadConfiguration
from infra.guards.shown_text import shown_lines

STDIO = Path("-")
"""Standard input or output."""
CHUNK = 1 << 16
BLOCK_BYTES = 1 << 20
FLUSH_AFTER_SECONDS = 0.05
"""A block ends if a pipe sends nothing for this long."""
QUICK_SECONDS = 5.0
"""Blocks grow while a block takes less than this."""
WAIT_SECONDS = 1.0
"""The longest time that the first line of a block waits for more lines."""


@contextmanager
def open_input(path: Path) -> Iterator[int]:
    """Open a file descriptor for reading. Raises BadConfiguration if that fails."""
    if path == STDIO:
        yield sys.stdin.fileno()
        return
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError as error:
        hint = '; for a sentence: echo "…" | repro translate' if not isinstance(error, PermissionError) else ""
        raise BadConfiguration(f"the input {path} cannot be read: {error.strerror}{hint}") from error
    try:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise BadConfiguration(f"the input {path} cannot be read: it is a folder")
        yield descriptor
    finally:
        os.close(descriptor)


def line_blocks(descriptor: int, size: int, most: int = 0) -> Iterator[list[bytes]]:
    """Yield blocks of up to ``size`` lines without newlines; fewer if the input pauses, ends, or has long lines.

    If ``most`` exceeds ``size``, blocks grow up to it while the caller processes each within a few seconds.
    """
    ready = select.poll()
    ready.register(descriptor, select.POLLIN)
    held: list[bytes] = []
    parts: list[bytes] = []  # parts of an unfinished line
    held_bytes = 0
    started = time.monotonic()
    while data := os.read(descriptor, CHUNK):
        started = started if held else time.monotonic()
        *lines, last = data.split(b"\n")
        if lines:
            lines[0] = b"".join([*parts, lines[0]])
            parts = []
        parts.append(last)
        held += lines
        held_bytes += len(data)
        while len(held) >= size:
            block = held[:size]
            held = held[size:]
            handed_over = time.monotonic()
            yield block
            if time.monotonic() - handed_over < QUICK_SECONDS:
                size = max(size, min(2 * size, most))
            held_bytes = sum(map(len, held))
            started = time.monotonic()
        waited = time.monotonic() - started > WAIT_SECONDS
        if held and (held_bytes >= BLOCK_BYTES or waited or not ready.poll(FLUSH_AFTER_SECONDS * 1000)):
            yield held
            held = []
            held_bytes = 0
    if rest := b"".join(parts):
        held.append(rest)
    for start in range(0, len(held), size):
        yield held[start : start + size]


def decode_line(line: bytes, first: bool) -> str:
    """Decode UTF-8 with U+FFFD for errors. Removes a final CR, and a byte order mark of the ``first`` line."""
    line = line.removesuffix(b"\r")
    return (line.removeprefix(codecs.BOM_UTF8) if first else line).decode("utf-8", "replace")


def fraction_read(descriptor: int) -> float:
    """Return the fraction of a file that has been read, 0 to 1; 0 for a pipe of unknown size."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or not status.st_size:
        return 0.0
    return os.lseek(descriptor, 0, os.SEEK_CUR) / status.st_size


@contextmanager
def open_output(path: Path) -> Iterator[Callable[[bytes], None]]:
    """Open a file that appears under its name when complete; yield a function that writes whole lines at once.

    If the body raises, a partial file that is not empty stays next to it under another name, which is printed. Raises
    BadConfiguration if the file cannot be written.
    """
    if path == STDIO:
        yield _show if sys.stdout.isatty() else partial(_write, sys.stdout.buffer)
        return
    # A pipe, or a name such as /dev/stdout that means an open file, must not be replaced by a file.
    special = path.exists() and (not path.is_file() or path.absolute().parts[1] in ("dev", "proc"))
    final = path if special else path.resolve()
    unfinished = final if special else final.with_name(f"{final.name}.partial-{uuid4().hex[:8]}")
    try:
        file = unfinished.open("wb")
    except OSError as error:
        raise BadConfiguration(f"the output {path} cannot be written: {error.strerror}") from error
    try:
        with file:
            yield partial(_write, file)
    except BaseException:
        if not special and unfinished.stat().st_size:
            say(f"the finished lines are in {unfinished}")
        elif not special:
            unfinished.unlink()
        raise
    if not special:
        unfinished.replace(final)


def _write(file: BinaryIO, data: bytes) -> None:
    file.write(data)
    file.flush()


def _show(data: bytes) -> None:
    """Write to a terminal, without control characters that could act on it."""
    sys.stdout.write(shown_lines(data.decode(errors="replace")))
    sys.stdout.flush()
