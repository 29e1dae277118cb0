"""``repro down``."""

from flows.views.terminal import say
from infra.servers.addresses import FOLDER
from infra.service import lifecycle
from infra.site import Site


def down() -> None:
    """End the servers and workers that `repro up` started, and all that they run; what was finished is kept.

    Example: repro down
    """
    folder = Site.named().root.absolute() / FOLDER
    say("down" if lifecycle.down(folder, say) else f"nothing runs under {folder.parent}")
