"""With REPRO_LOG=json every line on stderr is a JSON object, for programs that collect logs.

Each has ``time`` (UTC), ``level`` (info, warning, error) and ``message``; stages have further fields.
"""

import io
import json
import logging
import os
import re
import sys
import threading
from datetime import UTC, datetime
from typing import Any, TextIO

from infra.errors import BadConfiguration

VARIABLE = "REPRO_LOG"
COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class JsonLines(io.TextIOBase):
    """A text stream that writes each line as a JSON object to ``stream``."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self._begun = ""
        """The beginning of a line whose end has not been written."""
        self._lock = threading.RLock()

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self.stream.fileno()

    def write(self, text: str) -> int:
        with self._lock:
            *lines, self._begun = (self._begun + text).split("\n")
            for line in lines:
                if message := COLOUR.sub("", line).strip().removeprefix("repro: "):
                    self.event("info", message)
        return len(text)

    def flush(self) -> None:
        self.stream.flush()

    def event(self, level: str, message: str, **fields: Any) -> None:
        """Write one object."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        form = {"time": now, "level": level, "message": message, **fields}
        with self._lock:
            self.stream.write(f"{json.dumps(form, ensure_ascii=False, default=str)}\n")
            self.stream.flush()


class _Records(logging.Handler):
    """Writes what libraries log."""

    def emit(self, record: logging.LogRecord) -> None:
        trace = {"traceback": self.format(record)} if record.exc_info else {}
        event(record.levelname.lower(), record.getMessage(), logger=record.name, **trace)


def configure_log() -> None:
    """Write JSON from now on if REPRO_LOG says so. Raises BadConfiguration for an unknown value."""
    form = os.environ.get(VARIABLE, "")
    if form not in ("", "text", "json"):
        raise BadConfiguration(f"{VARIABLE} is {form!r}, allowed is text or json")
    if form == "json" and not isinstance(sys.stderr, JsonLines):
        sys.stderr = JsonLines(sys.stderr)
        logging.getLogger().addHandler(_Records(logging.WARNING))


def event(level: str, message: str, **fields: Any) -> bool:
    """Write an object, if the log is JSON; returns whether it is."""
    if not isinstance(sys.stderr, JsonLines):
        return False
    sys.stderr.event(level, message, **fields)
    return True
