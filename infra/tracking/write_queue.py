"""Queues writes to a server that may be unreachable, and executes them in order when it answers.

If the server does not answer, the queue warns once and retries until the run ends. If an answering server refuses a
write, the queue retries it a few times and then drops it, so that later writes are not blocked.
"""

import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from infra.guards.address_secrets import public_text
from infra.guards.shown_text import shown_lines
from infra.processes import signals
from infra.tracking.client import mlflow_errors

RETRY_AFTER_SECONDS = 60.0
"""Pause before a retry after the server did not answer."""
MAX_ATTEMPTS = 3
"""Attempts of a write that an answering server refuses."""
FINAL_FLUSH_SECONDS = 120.0
"""How long the end of a run waits for a server that answered before."""
POLL_SECONDS = 2.0


@dataclass
class WriteQueue:
    """Writes to the server at ``place``. ``answers`` sends a cheap request, and raises while there is no answer."""

    place: str
    answers: Callable[[], object]
    _waiting: deque[tuple[str, Callable[[], object]]] = field(default_factory=deque)
    _failures_of_first: int = 0
    _retry_at: float = 0.0
    _was_available: bool = False
    _warned: set[str] = field(default_factory=set)
    _flush_lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def last(self) -> Callable[[], object] | None:
        """The newest waiting action, if any."""
        return self._waiting[-1][1] if self._waiting else None

    def put(self, what: str, action: Callable[[], object]) -> None:
        """Queue an action, and execute all that the server accepts; ``what`` names the action in warnings."""
        self._waiting.append((what, action))
        self.flush()

    def retry_now(self) -> None:
        """Flush without the pause after a failure."""
        self._retry_at = 0.0
        self.flush()

    def flush(self) -> None:
        """Execute queued actions in order; stop at a failure that a retry may solve."""
        with self._flush_lock:
            while self._waiting and time.monotonic() >= self._retry_at:
                what, action = self._waiting[0]
                try:
                    action()
                    self._was_available = True
                except Exception as error:  # an error of tracking must not end a training
                    if _is_transient(error):
                        if self._is_available():
                            self._failures_of_first += 1
                        if self._failures_of_first < MAX_ATTEMPTS:
                            self._mark_unavailable(what, error)
                            return
                    self._warn(f"MLflow refused {what}: {_first_line(error)}")
                self._waiting.popleft()
                self._failures_of_first = 0

    def flush_all(self, patient: bool) -> None:
        """Flush at the end; ``patient`` waits for a server, or a file that worked before, unless a signal arrives."""
        self.retry_now()
        waits = patient and (self._was_available or self.place.startswith("http"))
        end = time.monotonic() + FINAL_FLUSH_SECONDS
        try:
            while self._waiting and waits and time.monotonic() < end:
                self._warn(f"waiting up to {FINAL_FLUSH_SECONDS:.0f} s for MLflow to record this run", "waiting")
                signals.wait(POLL_SECONDS)
                self.retry_now()
        except (KeyboardInterrupt, SystemExit):
            pass  # the signal stays pending and ends the next check
        if self._waiting and waits:
            self._warn(f"MLflow did not answer: {len(self._waiting)} writes are lost; the artifacts are kept")

    def _is_available(self) -> bool:
        try:
            self.answers()
        except mlflow_errors():
            return False
        return True

    def _mark_unavailable(self, what: str, error: Exception) -> None:
        self._retry_at = time.monotonic() + RETRY_AFTER_SECONDS
        self._warn(
            f"MLflow at {self.place} did not accept {what} ({_first_line(error)}); the run continues meanwhile", "away"
        )

    def _warn(self, text: str, subject: str = "") -> None:
        if (subject or text) not in self._warned:
            self._warned.add(subject or text)
            print(f"repro: {shown_lines(public_text(text, self.place))}", file=sys.stderr)


def _is_transient(error: Exception) -> bool:
    """Whether a later attempt may succeed; false for an error in the request itself."""
    if isinstance(error, ValueError | TypeError | LookupError | AttributeError | FileNotFoundError):
        return False
    code = getattr(error, "error_code", "INTERNAL_ERROR")
    return code in ("INTERNAL_ERROR", "TEMPORARILY_UNAVAILABLE", "REQUEST_LIMIT_EXCEEDED", "RESOURCE_EXHAUSTED")


def _first_line(error: Exception) -> str:
    return (f"{error}".strip().splitlines() or [type(error).__name__])[0][:300]
