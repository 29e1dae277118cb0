"""``repro down``."""

from flows.display import say
from infra.service import starting
from infra.service.addresses import FOLDER
from infra.site import Site


def down() -> None:
    """End the servers and workers that `repro up` started, and all that they run; what was finished is kept.

    Example: repro down
    """
    folder = Site.named().root.absolute() / FOLDER
    say("down" if starting.down(folder, say) else f"nothing runs under {folder.parent}")
