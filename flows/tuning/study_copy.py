"""What machines share of a sweep: the study's journal."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from infra.errors import NetworkFault
from infra.store.store import Store

JOURNAL = "study.log"


@dataclass(frozen=True)
class StudyCopy:
    """Shares the study in ``folder``, which this process has claimed in the store."""

    store: Store
    folder: Path
    check_claim: Callable[[], None]
    say: Callable[[str], None]

    def fetch(self) -> None:
        """Replace the journal by the shared one, if there is one. Raises NetworkFault."""
        self.store.fetch(self.folder / JOURNAL)

    def send(self) -> None:
        """Share the journal; where the store does not answer, say so: the next call sends everything.

        Raises Fault if another machine has taken the sweep over.
        """
        try:
            self.check_claim()
            self.store.share(self.folder / JOURNAL)
        except NetworkFault as fault:
            self.say(f"the study is not sent: {fault}")
