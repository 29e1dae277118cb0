"""``repro down``."""

from typing import Annotated

from cyclopts import Parameter

from flows.runner.recorded_runs import read_headers
from flows.views.terminal import say
from infra.errors import BadConfiguration
from infra.processes.identity import process_state
from infra.servers.service_settings import FOLDER, running_service
from infra.service import lifecycle
from infra.service.process_tags import tagged_pids
from infra.site import Site


def down(*, force: Annotated[bool, Parameter(help="stop even while a run in a terminal uses them")] = False) -> None:
    """Stop the servers and workers that `repro up` started, and the runs of these workers. Finished stages are kept.

    While a run in a terminal uses the servers, nothing is stopped, unless --force is given.

    Example: repro down
    """
    root = Site.named().root.absolute()
    if not force and (service := running_service(root)):
        ours = {f"{pid}" for pid in tagged_pids(service.folder)}
        open_here = [each for each in read_headers(root) if each.is_open and process_state(each.process) == "alive"]
        runs = (each for each in open_here if each.pid not in ours)
        if stops := "; ".join(f"repro stop {each.full_name}" for each in runs):
            raise BadConfiguration(f"runs at work use the servers; stop them first, or add --force: {stops}")
    say(f"the service under {root} " + ("is stopped" if lifecycle.down(root / FOLDER, say) else "was not running"))
