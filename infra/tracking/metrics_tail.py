"""Reads a growing file, such as ``metrics.jsonl``, line by line while a job writes it."""

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any


class MetricsTail:
    """Reads the new complete lines of a growing file.

    An incomplete line waits for the next call. A file that became shorter was rewritten, so it is read from its start.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0

    def read(self) -> list[dict[str, Any]]:
        """Return the rows written since the last call. Skips a broken line of a killed writer."""
        rows = []
        for line in self.read_lines().split(b"\n"):
            with suppress(ValueError):
                row = json.loads(line)
                if isinstance(row, dict):
                    rows.append(row)
        return rows

    def read_lines(self) -> bytes:
        """Return the lines written since the last call; none if the file is missing."""
        try:
            with self.path.open("rb") as file:
                if os.fstat(file.fileno()).st_size < self._offset:
                    self._offset = 0
                file.seek(self._offset)
                block = file.read()
        except FileNotFoundError:
            return b""
        whole = block[: block.rfind(b"\n") + 1]
        self._offset += len(whole)
        return whole
