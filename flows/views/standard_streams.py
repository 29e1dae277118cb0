"""Handles closed and full standard streams; output is UTF-8 in every locale.

A failed write of results to stdout is an error, since a reader would take incomplete results as complete. A failed
write of messages to stderr is ignored, since it must not end a run.
"""

import io
import os
import sys
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
        sys.stdout = _open(1, sys.stdout)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _open(2, sys.stderr)


def discard_stdout() -> None:
    """Discard buffered output: a second error during exit would change the exit code."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Tolerant(io.FileIO):
    """Raises Fault for the first failed write to stdout, and ignores other failed writes. Raises for a closed pipe."""

    failed = False

    def write(self, data: "ReadableBuffer", /) -> int:
        if not self.failed:
            try:
                return super().write(data)
            except BrokenPipeError:
                raise
            except OSError as error:
                self.failed = True
                if self.fileno() == 1:
                    why = f"{error.strerror}; open it or redirect it to a file"
                    raise Fault(f"the results cannot be written to stdout: {why}") from error
        return memoryview(data).nbytes


def _open(descriptor: int, present: TextIO | None) -> io.TextIOWrapper:
    if present:
        present.flush()
    raw = _Tolerant(descriptor, "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding="utf-8",
        errors="backslashreplace",  # writes a lone surrogate as \udcff, also valid in JSON
        line_buffering=descriptor == 2 or raw.isatty(),
    )
