"""A lock around the tracker, which is not thread-safe, for stages that run on several threads."""

import threading
from types import TracebackType

from infra.tracking.tracker import Tracker


class LockedTracker:
    """Gives the tracker to one thread at a time: ``with locked as tracker: tracker.cached(…)``."""

    def __init__(self, tracker: Tracker) -> None:
        self.tracker = tracker
        self._lock = threading.Lock()

    def __enter__(self) -> Tracker:
        self._lock.acquire()
        return self.tracker

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()
