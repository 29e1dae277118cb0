"""``repro status``."""

import json

from flows.commands.options import JsonOption
from flows.runner.interrupted import unfinished
from flows.views.service_view import state_table
from flows.views.terminal import console, say
from infra.errors import Fault
from infra.servers.addresses import FOLDER
from infra.service import lifecycle
from infra.service.status import as_json as form
from infra.service.status import states
from infra.site import Site


def status(*, as_json: JsonOption = False) -> None:
    """Show each program of the service: state, start, health, address and log. Lists interrupted runs as well.

    Exit code 1 if the service is down or a program is not healthy.

    Example: repro status
    """
    folder = Site.named().root.absolute() / FOLDER
    service = lifecycle.running(folder)
    found = states(service) if service else []
    if found:
        console().print(state_table(found))
    if as_json:
        print(json.dumps(form(found)))
    for each in unfinished(Site.named()):
        say(f"the run of {each.started:%Y%m%d} was interrupted; to resume it: {each.command}")
    if not found:
        raise Fault(f"no service is running under {folder.parent}; start it with `repro up`")
    if bad := [each.name for each in found if not each.healthy]:
        raise Fault(f"not healthy: {', '.join(bad)}; see the logs in {folder / 'logs'}")
