"""Lines of a file or a pipe, in blocks of bounded size, as soon as they are there; and where an output goes.

In come bytes of any kind: a line ends with a newline, the last one with or without. What is done to a line is not known
here.
"""

import codecs
import os
import select
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

from flows.views.terminal import say
from infra.errors import BadConfiguration

STDIO = Path("-")
"""Stands for standard input or output."""
CHUNK = 1 << 16
BLOCK_BYTES = 1 << 20
FLUSH_AFTER_SECONDS = 0.05
"""A pipe that is silent for so long gets its answer."""
WAIT_SECONDS = 1.0
"""How long the first line of a block waits for others."""


@contextmanager
def open_input(path: Path) -> Iterator[int]:
    """A file descriptor to read from. Raises BadConfiguration for what cannot be read."""
    if path == STDIO:
        yield sys.stdin.fileno()
        return
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise BadConfiguration(f"the input {path} cannot be read: {error.strerror}") from error
    try:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise BadConfiguration(f"the input {path} cannot be read: it is a folder")
        yield descriptor
    finally:
        os.close(descriptor)


def line_blocks(
    descriptor: int, most: int, pause: float = FLUSH_AFTER_SECONDS, wait: float = WAIT_SECONDS
) -> Iterator[list[bytes]]:
    """Lines without their newline, up to ``most`` at once: fewer where the input pauses, ends, or has long lines."""
    ready = select.poll()
    ready.register(descriptor, select.POLLIN)
    held: list[bytes] = []
    parts: list[bytes] = []  # of a line whose end has not come
    size, begun = 0, time.monotonic()
    while data := os.read(descriptor, CHUNK):
        begun = begun if held else time.monotonic()
        *lines, last = data.split(b"\n")
        if lines:
            lines[0] = b"".join([*parts, lines[0]])
            parts = []
        parts.append(last)
        held += lines
        size += len(data)
        while len(held) >= most:
            yield held[:most]
            held = held[most:]
            size = sum(map(len, held))
        waited = time.monotonic() - begun > wait
        if held and (size >= BLOCK_BYTES or waited or not ready.poll(pause * 1000)):
            yield held
            held, size = [], 0
    if rest := b"".join(parts):
        held.append(rest)
    for start in range(0, len(held), most):
        yield held[start : start + most]


def decode_line(line: bytes, first: bool) -> str:
    """A line as text: what is no UTF-8 becomes U+FFFD; a carriage return at its end, and a byte order mark at the
    begin of the ``first``, are no text."""
    line = line.removesuffix(b"\r")
    return (line.removeprefix(codecs.BOM_UTF8) if first else line).decode("utf-8", "replace")


def fraction_read(descriptor: int) -> float:
    """How much of a file has been read, 0 to 1; 0 for a pipe, whose end nobody knows."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or not status.st_size:
        return 0.0
    return os.lseek(descriptor, 0, os.SEEK_CUR) / status.st_size


@contextmanager
def open_output(path: Path) -> Iterator[BinaryIO]:
    """Where to write: a file appears under its name when it is whole; until then, and for good if the work breaks off,
    it lies beside. Raises BadConfiguration for what cannot be written."""
    if path == STDIO:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    # Nothing may be put in the place of a pipe, or of a name such as /dev/stdout, which stands for an open file.
    special = path.exists() and (not path.is_file() or path.absolute().parts[1] in ("dev", "proc"))
    place = path if special else path.resolve()
    beside = place if special else place.with_name(f"{place.name}.partial-{uuid4().hex[:8]}")
    try:
        file = beside.open("wb")
    except OSError as error:
        raise BadConfiguration(f"the output {path} cannot be written: {error.strerror}") from error
    try:
        with file:
            yield file
    except BaseException:
        if not special:
            _keep_partial(beside)
        raise
    if not special:
        beside.replace(place)


def _keep_partial(beside: Path) -> None:
    """What was written stays, if there is any, and is named."""
    if beside.stat().st_size:
        say(f"what was finished lies in {beside}")
    else:
        beside.unlink()
