"""What machines share of a sweep whose root is a bucket: the study's journal, and a marker of the one that runs it."""

import contextlib
import json
import os
import socket
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from infra.errors import BadConfiguration, Fault, NetworkFault
from infra.processes.identity import process_identity, process_state
from infra.store.files import write_atomically
from infra.store.local import Store
from infra.store.s3 import S3Store
from infra.store.s3_client import Bucket, NoSuchKey, PreconditionFailed

JOURNAL = "study.log"
MARKER = "holder.json"
UNREADABLE = {"holder": "an unknown process", "process": "", "mark": ""}


@dataclass(frozen=True)
class StudyCopy:
    """Shares the study in ``folder``, below the root of ``store``; does nothing where the root is a folder."""

    store: Store
    folder: Path
    say: Callable[[str], None]
    _mark: str = field(default_factory=lambda: uuid.uuid4().hex)

    @contextlib.contextmanager
    def claimed(self, take_over: bool) -> Iterator[None]:
        """Mark the sweep as run by this process during the block.

        Raises BadConfiguration if another process holds it, unless that process was one of this machine and has ended.
        ``take_over`` removes the marker of another machine. Raises NetworkFault.
        """
        if not isinstance(self.store, S3Store):
            yield
            return
        bucket = self.store.bucket
        found = self._write_marker(bucket)
        if found and (take_over or process_state(found["process"]) == "gone"):
            self.say(f"sweep {self.folder.name}: taken over from {found['holder']}")
            bucket.delete([self._name(MARKER)])
            found = self._write_marker(bucket)
        if found:
            raise BadConfiguration(
                f"the sweep {self.folder.name} is run by {found['holder']}: wait for it, or, if it has ended there,"
                " repeat the command with --take-over"
            )
        try:
            yield
        finally:
            with contextlib.suppress(Fault):  # --take-over removes a marker that stays
                if self._read_marker(bucket)["mark"] == self._mark:
                    bucket.delete([self._name(MARKER)])

    def fetch(self) -> None:
        """Replace the journal by the one in the bucket, if there is one. Raises NetworkFault."""
        if isinstance(self.store, S3Store):
            with contextlib.suppress(NoSuchKey):
                journal = self.store.bucket.read(self._name(JOURNAL)).decode()
                write_atomically(self.folder / JOURNAL, journal)

    def send(self) -> None:
        """Replace the journal in the bucket; where that does not answer, say so: the next call sends everything.

        Raises Fault if another machine has taken the sweep over.
        """
        try:
            if (
                isinstance(self.store, S3Store)
                and (found := self._read_marker(self.store.bucket))["mark"] != self._mark
            ):
                raise Fault(f"{found['holder']} took over the sweep {self.folder.name}; this process ends")
            self.store.send(self.folder / JOURNAL)
        except NetworkFault as fault:
            self.say(f"the study is not sent: {fault}")

    def _write_marker(self, bucket: Bucket) -> dict[str, str]:
        """Write this process's marker unless there is one; gives that of another process, {} if this one holds it."""
        holder = f"process {os.getpid()} on {socket.gethostname()}"
        form = {"holder": holder, "process": process_identity(), "mark": self._mark}
        with contextlib.suppress(PreconditionFailed):
            bucket.put_if_absent(self._name(MARKER), json.dumps(form, indent=1).encode())
        # Read in any case: a request repeated for want of an answer fails on its own first try.
        found = self._read_marker(bucket)
        return {} if found["mark"] == self._mark else found

    def _read_marker(self, bucket: Bucket) -> dict[str, str]:
        try:
            form = json.loads(bucket.read(self._name(MARKER)))
            return {name: f"{form[name]}" for name in UNREADABLE}
        except (NoSuchKey, ValueError, TypeError, KeyError):
            return UNREADABLE

    def _name(self, file: str) -> str:
        return (self.folder.absolute() / file).relative_to(self.store.root).as_posix()
