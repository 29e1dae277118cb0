"""Writes to a store that may be away: kept in order, and carried out as soon as it takes them.

Comes in: actions, each with a word that says what it writes. Goes out: the same actions, called; one warning while the
store is away. A store that does not answer is asked again later, for however long; a write that it refuses while it
does answer is tried a few times and then given up, so that it stands in nobody's way. Knows nothing of what is written.
"""

import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from infra.processes import signals

RETRY_AFTER_SECONDS = 60.0
"""How long a store that did not answer is left alone."""
MAX_ATTEMPTS = 3
"""Times a write is tried that a store which answers does not take."""
FINAL_FLUSH_SECONDS = 120.0
"""How long the end of a run waits for a store that was there before."""
POLL_SECONDS = 2.0


@dataclass
class WriteQueue:
    """What is to be written at ``place``; ``answers`` asks it for next to nothing, and raises when it is away."""

    place: str
    answers: Callable[[], object]
    _waiting: deque[tuple[str, Callable[[], object]]] = field(default_factory=deque)
    _failures_of_first: int = 0
    _retry_at: float = 0.0
    _was_available: bool = False
    _warned: set[str] = field(default_factory=set)
    _flush_lock: threading.Lock = field(default_factory=threading.Lock)

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def last(self) -> Callable[[], object] | None:
        """The action that was put last, while it still waits."""
        return self._waiting[-1][1] if self._waiting else None

    def put(self, what: str, action: Callable[[], object]) -> None:
        """Write this after all that was put before."""
        self._waiting.append((what, action))

    def call_now(self, what: str, action: Callable[[], str]) -> str:
        """The answer to ``action``, at once and before what waits; "" from a store that is away."""
        if time.monotonic() < self._retry_at:
            return ""
        try:
            answer = action()
        except Exception as error:
            self._mark_unavailable(what, error)
            return ""
        self._was_available = True
        return answer

    def retry_now(self) -> None:
        """Let the next write be tried at once."""
        self._retry_at = 0.0

    def flush(self, last: bool = False) -> None:
        """Carry out what waits, in order, until the store does not answer; ``last`` passes over some failures."""
        with self._flush_lock:
            self._flush(last)

    def _flush(self, last: bool) -> None:
        failures = 0
        while self._waiting and time.monotonic() >= self._retry_at:
            what, action = self._waiting[0]
            try:
                action()
                self._was_available = True
            except Exception as error:
                if _is_transient(error) and not self._is_available():
                    self._mark_unavailable(what, error)
                    return
                failures += 1
                if last and failures < MAX_ATTEMPTS:
                    self._warn(f"MLflow did not take {what}: {_first_line(error)}")
                elif _is_transient(error) and self._failures_of_first < MAX_ATTEMPTS:
                    self._failures_of_first += 1
                    self._mark_unavailable(what, error)
                    return
                else:
                    self._warn(f"MLflow refused {what}: {_first_line(error)}")
            self._waiting.popleft()
            self._failures_of_first = 0

    def flush_all(self, patient: bool) -> None:
        """The last flush; ``patient`` waits for a store that was there before, or is a server; a signal ends that."""
        self.retry_now()
        self.flush(last=True)
        waits = patient and (self._was_available or self.place.startswith("http"))
        end = time.monotonic() + FINAL_FLUSH_SECONDS
        try:
            while self._waiting and waits and time.monotonic() < end:
                self._warn(
                    f"waiting up to {FINAL_FLUSH_SECONDS:.0f} s for MLflow, which is to be told of this run", "waiting"
                )
                signals.wait(POLL_SECONDS)
                self.retry_now()
                self.flush(last=True)
        except (KeyboardInterrupt, SystemExit):
            pass  # the signal is kept, and whoever asks for it next ends by it
        if self._waiting and waits:
            self._warn(f"MLflow did not come back: {len(self._waiting)} writes are lost; the artifacts are not")

    def _is_available(self) -> bool:
        try:
            self.answers()
        except Exception:
            return False
        return True

    def _mark_unavailable(self, what: str, error: Exception) -> None:
        self._retry_at = time.monotonic() + RETRY_AFTER_SECONDS
        self._warn(
            f"MLflow at {self.place} does not take {what} ({_first_line(error)}); the run goes on without", "away"
        )

    def _warn(self, text: str, subject: str = "") -> None:
        if (subject or text) not in self._warned:
            self._warned.add(subject or text)
            print(f"repro: {text}", file=sys.stderr)


def _is_transient(error: Exception) -> bool:
    """Whether a later try may succeed: anything but a plain refusal of what was given."""
    if isinstance(error, ValueError | TypeError | LookupError | AttributeError | FileNotFoundError):
        return False
    code = getattr(error, "error_code", "INTERNAL_ERROR")
    return code in ("INTERNAL_ERROR", "TEMPORARILY_UNAVAILABLE", "REQUEST_LIMIT_EXCEEDED", "RESOURCE_EXHAUSTED")


def _first_line(error: Exception) -> str:
    return (f"{error}".strip().splitlines() or [type(error).__name__])[0][:300]
