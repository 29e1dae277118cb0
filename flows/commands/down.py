"""``repro down``."""

from flows.views.terminal import say
from infra.servers.service_settings import FOLDER
from infra.service import lifecycle
from infra.site import Site


def down() -> None:
    """Stop the servers and workers that `repro up` started, and the runs of these workers. Finished stages are kept.

    Example: repro down
    """
    folder = Site.named().root.absolute() / FOLDER
    say(f"the service under {folder.parent} " + ("is stopped" if lifecycle.down(folder, say) else "was not running"))
