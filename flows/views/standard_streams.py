"""Standard streams that are closed or full; what is written is UTF-8 whatever the locale is.

Results that cannot be written to stdout are an error, since a program that reads them would take a part for the whole.
Messages that cannot be written to stderr are dropped, since a run must not end for them.
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
    """Open closed standard streams and replace ``sys.stdout`` and ``sys.stderr`` by tolerant ones.

    Streams that somebody else replaced, such as a test, are left alone.
    """
    # Else a database would be opened as descriptor 1 or 2, and a library that prints would write into it.
    for descriptor, mode in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            # What is written to a closed stdout fails, as stdout is opened for reading.
            assert os.open(os.devnull, mode) == descriptor
            os.set_inheritable(descriptor, True)
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115  it stays open
    if sys.stdout is sys.__stdout__:
        sys.stdout = _open(1, sys.stdout, _refuse)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _open(2, sys.stderr, lambda _: None)


def flush_stdout() -> None:
    """Write what is buffered, so that an error shows before the exit code is decided. Raises Fault."""
    sys.stdout.flush()


def discard_stdout() -> None:
    """Drop what is buffered: a second error while the interpreter ends would change the exit code."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Tolerant(io.FileIO):
    """Calls ``on_error`` for the first write that fails, and drops everything after it. A closed pipe is an error."""

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
        errors="backslashreplace",  # a lone surrogate as \udcff, which is also valid in JSON
        line_buffering=descriptor == 2 or raw.isatty(),
    )


def _refuse(error: OSError) -> None:
    raise Fault(f"the results cannot be written to stdout: {error.strerror}; open it or redirect it to a file")
