"""A lease in a bucket: of several machines, one makes an artifact that takes hours, and the others wait for it.

    <stage>/<key>/lease.json   the holder, a random mark, and a number that grows with each renewal

The lease is created only if there is none (``If-None-Match``), and replaced only by its ETag (``If-Match``). The holder
renews it on a thread. It expires when another machine has seen no renewal for ``LEASE_SECONDS`` on its own clock, so
the machines' clocks need not agree. A lease saves work but decides nothing: sealing is conditional in any case.
"""

import contextlib
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from infra.errors import Fault
from infra.processes import signals
from infra.processes.identity import process_identity, process_state
from infra.store.s3_client import Bucket, NoSuchKey, PreconditionFailed

LEASE = "lease.json"
LEASE_SECONDS = 180.0
"""A lease that is not renewed for this long may be taken over."""
RENEW_SECONDS = 20.0
POLL_SECONDS = 10.0
"""Pause between two looks of a machine that waits; each look is one list request."""


class LeaseLost(Fault):
    """Another machine took the lease over, because it saw no renewal in time."""


@dataclass(frozen=True)
class _Found:
    """The lease in the bucket. An unreadable one has no holder and expires like others."""

    etag: str
    mark: str = ""
    number: int = -1
    holder: str = "another machine"
    process: str = ""


class Lease:
    """The lease of the artifact in ``folder``. ``clock`` and ``wait`` measure and pass seconds on this machine."""

    def __init__(
        self,
        bucket: Bucket,
        folder: str,
        clock: Callable[[], float] | None = None,
        wait: Callable[[float], None] = signals.wait,
    ) -> None:
        self.bucket, self.folder = bucket, folder
        self._clock, self._wait = clock or _seconds_since_boot, wait
        self._mark, self._number, self._etag = uuid.uuid4().hex, 0, ""
        self._lost_to = ""
        self._ended = threading.Event()
        self._busy = threading.Lock()

    @contextlib.contextmanager
    def held(self, on_wait: Callable[[str], None], say: Callable[[str], None]) -> Iterator[Callable[[], None]]:
        """Hold the lease for the block; yields ``check``, which raises LeaseLost once another machine has it.

        ``on_wait`` gets each holder that this machine waits for, ``say`` a message for a takeover. Raises NetworkFault.
        """
        self.acquire(on_wait, say)
        # A daemon: the process may end at any time, and its lease then expires.
        threading.Thread(target=self._renew_until_ended, name="lease", daemon=True).start()
        try:
            yield self.check
        finally:
            self._ended.set()
            with contextlib.suppress(Fault), self._busy:  # a lease that stays expires
                self.release()

    def acquire(self, on_wait: Callable[[str], None], say: Callable[[str], None]) -> None:
        """Wait until the lease is this machine's. Raises NetworkFault, and as ``signals.check`` does."""
        seen, since, announced = _Found(""), self._clock(), ""
        while not self._write(""):
            found = self._read(seen)
            while found:
                if found.etag != seen.etag:
                    seen, since = found, self._clock()
                is_expired = self._clock() - since >= LEASE_SECONDS
                if is_expired or process_state(found.process) == "gone":
                    if self._write(found.etag):
                        reason = f"did not renew its lease for {LEASE_SECONDS:g} s" if is_expired else "has ended"
                        say(f"{found.holder} {reason}: this process makes {self._label}")
                        return
                else:
                    if found.mark != announced:
                        on_wait(found.holder)
                    announced = found.mark
                    self._wait(POLL_SECONDS)
                found = self._read(seen)

    def renew(self) -> None:
        """Show that this machine still works, or find out that another one took over. Raises NetworkFault."""
        etag = self._etag
        while not self._write(etag):
            found = self._read()
            if found and found.mark != self._mark:
                self._lost_to = found.holder
                return
            # The lease was removed, or is this machine's by a request whose answer did not arrive.
            etag = found.etag if found else ""

    def check(self) -> None:
        """Raise LeaseLost if the last renewal found another holder."""
        if self._lost_to:
            raise LeaseLost(
                f"{self._lost_to} took over {self._label}, because this machine did not reach {self.bucket.address}"
                f" for {LEASE_SECONDS:g} s"
            )

    def release(self) -> None:
        """Remove the lease, unless another machine has it by now. Raises NetworkFault."""
        found = self._read()
        if found and found.mark == self._mark:
            with contextlib.suppress(PreconditionFailed):  # taken over, or removed by this request's first try
                self.bucket.delete_if_match(self._name, found.etag)

    @property
    def _name(self) -> str:
        return f"{self.folder}/{LEASE}"

    @property
    def _label(self) -> str:
        return self.folder.replace("/", " ")

    def _renew_until_ended(self) -> None:
        while not self._ended.wait(RENEW_SECONDS) and not self._lost_to:
            with contextlib.suppress(Fault), self._busy:  # the next renewal may succeed
                if not self._ended.is_set():
                    self.renew()

    def _write(self, etag: str) -> bool:
        """Write the lease over the one of that ETag ("": over none); whether it is this machine's now."""
        self._number += 1
        form = {
            "holder": f"process {os.getpid()} on {socket.gethostname()}",
            "process": process_identity(),
            "mark": self._mark,
            "number": self._number,
        }
        try:
            self._etag = self.bucket.put_if_match(self._name, json.dumps(form, indent=1).encode(), etag)
        except (PreconditionFailed, NoSuchKey):
            # A request repeated for want of an answer fails on its own first try.
            found = self._read()
            if found is None or (found.mark, found.number) != (self._mark, self._number):
                return False
            self._etag = found.etag
        return True

    def _read(self, known: _Found | None = None) -> _Found | None:
        """The lease in the bucket; ``known``, without reading it again, if its ETag is the same.

        Listed first: the ETag is then never newer than the content, so nobody's newer lease is replaced by it.
        """
        listed = self.bucket.list(self.folder).get(LEASE)
        if listed is None or (known and listed.etag == known.etag):
            return known if listed else None
        try:
            form = json.loads(self.bucket.read(self._name))
            return _Found(listed.etag, form["mark"], form["number"], f"{form['holder']}", f"{form['process']}")
        except NoSuchKey:
            return None
        except (ValueError, TypeError, KeyError):
            return _Found(listed.etag)


def _seconds_since_boot() -> float:
    """A clock that also counts the time that this machine sleeps, and that nobody sets."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
