"""Disk space that concurrent downloads reserve, so that a full disk is reported before the first byte is written."""

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from infra.errors import NoSpace


class DiskReservations:
    """The bytes that each download in progress still has to write."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reserved: dict[object, int] = {}

    @contextmanager
    def reserve(self, folder: Path, size: int, name: str) -> Iterator[Callable[[int], None]]:
        """Reserve ``size`` bytes for the file ``name``; call the yielded function with each number of bytes written.

        Raises NoSpace when the free space, less what other downloads reserved, is smaller than ``size``.
        """
        reservation = object()
        with self._lock:
            free = shutil.disk_usage(folder).free - sum(self._reserved.values())
            if size > free:
                raise NoSpace(
                    f"no space left under {folder}: {name} needs {size:,} bytes and {max(free, 0):,} are free; "
                    "free some, or set REPRO_ROOT to another disk"
                )
            self._reserved[reservation] = max(size, 0)

        def release(written: int) -> None:
            self._reserved[reservation] = max(0, self._reserved[reservation] - written)

        try:
            yield release
        finally:
            with self._lock:
                del self._reserved[reservation]
