"""The copy of a study's journal in the bucket of a remote root, from which another machine goes on."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from infra.errors import NetworkFault
from infra.store.files import write_atomically
from infra.store.local import Store
from infra.store.s3 import S3Store
from infra.store.s3_client import NoSuchKey

JOURNAL = "study.log"


@dataclass(frozen=True)
class StudyCopy:
    """Fetches and sends the file ``journal``, below the root of ``store``; does nothing where the root is a folder.

    ``check`` raises LeaseLost once another machine has taken over.
    """

    store: Store
    journal: Path
    check: Callable[[], None]
    say: Callable[[str], None]

    def fetch(self) -> None:
        """Replace the file by the one in the bucket, if there is one. Raises NetworkFault."""
        if isinstance(self.store, S3Store):
            name = self.journal.absolute().relative_to(self.store.root).as_posix()
            with contextlib.suppress(NoSuchKey):
                write_atomically(self.journal, self.store.bucket.read(name).decode())

    def send(self) -> None:
        """Replace the one in the bucket; where that does not answer, say so: the next call sends everything."""
        self.check()
        try:
            self.store.send(self.journal)
        except NetworkFault as fault:
            self.say(f"the study is not sent: {fault}")
