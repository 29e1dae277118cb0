"""Keeps this machine's copies of a remote store within a size limit by evicting the least recently used first.

A shared kernel lock pins each artifact that a process reads, and disappears with the process. An artifact that is not
in the remote store is never evicted.
"""

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

from infra.processes.locks import try_file_lock
from infra.store.local import LocalStore
from infra.store.manifest import Manifest, bytes_of


class ArtifactCache:
    """The artifacts in the folder of ``store``, together at most ``limit_bytes``."""

    def __init__(self, store: LocalStore, limit_bytes: int, is_backed_up: Callable[[Manifest], bool]) -> None:
        self._store = store
        self._limit_bytes = limit_bytes
        self._is_backed_up = is_backed_up
        self._pinned: dict[tuple[str, str], int] = {}

    def pin(self, stage: str, key: str) -> None:
        """Mark an artifact as just used, and keep it until ``release`` or the end of this process."""
        path = self._use_file(stage, key)
        if (stage, key) not in self._pinned:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            self._pinned[stage, key] = descriptor
        os.utime(path)

    def release(self) -> None:
        """Unpin everything and apply the limit."""
        while self._pinned:
            os.close(self._pinned.popitem()[1])
        self.evict(0)

    def evict(self, needed_bytes: int) -> None:
        """Remove the least recently used artifacts until ``needed_bytes`` more fit the limit, if possible."""
        files = {self._use_file(each.stage, each.key): each for each in self._store.list()}
        excess = sum(map(bytes_of, files.values())) + needed_bytes - self._limit_bytes
        for _, manifest in sorted(files.items(), key=lambda each: each[0].stat().st_mtime if each[0].exists() else 0.0):
            if excess <= 0:
                return
            with try_file_lock(self._use_file(manifest.stage, manifest.key)) as free:
                if free and self._is_backed_up(manifest):
                    self._store.remove(manifest.stage, manifest.key)
                    excess -= bytes_of(manifest)

    def _use_file(self, stage: str, key: str) -> Path:
        return self._store.root / "locks" / f"use-{stage}-{key}"
