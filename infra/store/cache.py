"""The limit of what a machine keeps of a remote store: what was used longest ago goes first.

An artifact that some process reads is held by a shared kernel lock, which vanishes with that process. What is nowhere
else is never removed: whether an artifact is, the caller is asked.
"""

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

from infra.processes.locks import try_file_lock
from infra.store.local import Manifest, Store


class ArtifactCache:
    """The artifacts in the folder of ``store``, at most ``limit_bytes`` of them."""

    def __init__(self, store: Store, limit_bytes: int, is_backed_up: Callable[[Manifest], bool]) -> None:
        self._store, self._limit_bytes, self._is_backed_up = store, limit_bytes, is_backed_up
        self._pinned: dict[tuple[str, str], int] = {}

    def pin(self, stage: str, key: str) -> None:
        """Hold an artifact until ``release`` or the end of this process; it is now the one used last."""
        path = self._use_file(stage, key)
        if (stage, key) not in self._pinned:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            self._pinned[stage, key] = descriptor
        os.utime(path)

    def release(self) -> None:
        """Hold nothing any more, and keep the limit."""
        while self._pinned:
            os.close(self._pinned.popitem()[1])
        self.evict(0)

    def evict(self, needed_bytes: int) -> None:
        """Remove what was used longest ago until so many bytes more are within the limit, as far as that can be."""
        there = [(self._last_use(m), bytes_of(m), m) for m in self._store.sealed()]
        over = sum(size for _, size, _ in there) + needed_bytes - self._limit_bytes
        for _, size, manifest in sorted(there, key=lambda each: each[0]):
            if over <= 0:
                return
            with try_file_lock(self._use_file(manifest.stage, manifest.key)) as free:
                if free and self._is_backed_up(manifest):
                    self._store.remove(manifest.stage, manifest.key)
                    over -= size

    def _last_use(self, manifest: Manifest) -> float:
        try:
            return self._use_file(manifest.stage, manifest.key).stat().st_mtime
        except OSError:
            return 0.0

    def _use_file(self, stage: str, key: str) -> Path:
        return self._store.root / "locks" / f"use-{stage}-{key}"


def bytes_of(manifest: Manifest) -> int:
    return sum(int(file["bytes"]) for file in manifest.files.values())
