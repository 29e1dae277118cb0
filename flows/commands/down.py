"""``repro down``."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from flows.runner.recorded_runs import read_headers
from flows.runner.records import RUNNING
from flows.runs.overrides import as_options
from flows.views.terminal import say
from infra.errors import BadConfiguration
from infra.processes.identity import process_state
from infra.servers.service_settings import FOLDER, running_service
from infra.service import lifecycle
from infra.service.process_tags import tagged_pids
from infra.site import Site


def down(
    *,
    force: Annotated[bool, Parameter(help="also while a run in a terminal uses the servers")] = False,
) -> None:
    """Stop the servers and workers that `repro up` started, and the runs of these workers. Finished stages are kept.

    While a run in a terminal uses the servers, nothing is stopped, but with --force.

    For example:

    repro down
    """
    root = Site.named().root.absolute()
    folder = root / FOLDER
    if not force and running_service(root) and (runs := _runs_elsewhere(folder)):
        stops = "; ".join(f"repro stop {run}" for run in runs)
        raise BadConfiguration(f"runs at work use the servers; stop them first, or add --force: {stops}")
    say(f"the service under {root} " + ("is stopped" if lifecycle.down(folder, say) else "was not running"))


def _runs_elsewhere(folder: Path) -> list[str]:
    """The runs at work in processes of this machine that are not of the service's workers, as `repro stop` has them."""
    own = {f"{pid}" for pid in tagged_pids(folder)}
    alive = [each for each in read_headers(folder.parent) if each.outcome == RUNNING]
    others = [
        each for each in alive if process_state(each.process) == "alive" and each.process.split("/")[3] not in own
    ]
    return [f"{each.run}{as_options(each.overrides)}" for each in others]
