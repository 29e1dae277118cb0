"""Handles closed and full standard streams; output is UTF-8 in every locale.

A failed write of results to stdout is an error, since a reader would take incomplete results as complete. A failed
write of messages to stderr is ignored, since it must not end a run.
"""

import io
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

from infra.errors import Fault

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


def prepare_streams() -> None:
    """Open closed standard streams, and replace ``sys.stdout`` and ``sys.stderr`` by streams that handle errors.

    Streams that other code replaced, such as a test, stay.
    """
    # Else a database could get descriptor 1 or 2, and a library that prints would write into it.
    for descriptor, mode in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            # A closed stdout is opened for reading, so that writes fail.
            assert os.open(os.devnull, mode) == descriptor
            os.set_inheritable(descriptor, True)
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115  it stays open
    if sys.stdout is sys.__stdout__:
        sys.stdout = _open(1, sys.stdout, _refuse)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _open(2, sys.stderr, lambda _: None)


def discard_stdout() -> None:
    """Discard buffered output: a second error during exit would change the exit code."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Tolerant(io.FileIO):
    """Calls ``on_error`` for the first failed write and ignores later writes. Raises for a closed pipe."""

    def __init__(self, descriptor: int, on_error: Callable[[OSError], None]) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self.on_error = on_error
        self.failed = False

    def write(self, data: "ReadableBuffer", /) -> int:
        if not self.failed:
            try:
                return super().write(data)
            except BrokenPipeError:
                raise
            except OSError as error:
                self.failed = True
                self.on_error(error)
        return memoryview(data).nbytes


def _open(descriptor: int, present: TextIO | None, on_error: Callable[[OSError], None]) -> io.TextIOWrapper:
    if present:
        present.flush()
    raw = _Tolerant(descriptor, on_error)
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding="utf-8",
        errors="backslashreplace",  # writes a lone surrogate as \udcff, also valid in JSON
        line_buffering=descriptor == 2 or raw.isatty(),
    )


def _refuse(error: OSError) -> None:
    raise Fault(f"the results cannot be written to stdout: {error.strerror}; open it or redirect it to a file")
