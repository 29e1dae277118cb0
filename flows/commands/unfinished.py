"""``repro unfinished``."""

import json
from typing import Annotated

from cyclopts import Parameter

from flows.commands.options import JsonOption, SiteOption
from flows.runner import interrupted as runs
from flows.views.terminal import say
from infra.servers.environment import configure_libraries, server_configured
from infra.site import Site


def unfinished(
    *,
    sweep: Annotated[
        bool,
        Parameter(
            negative=(), help="end what MLflow, Prefect and the records still hold to be running, though it is gone"
        ),
    ] = False,
    site: SiteOption = "local",
    as_json: JsonOption = False,
) -> None:
    """List the runs that were cut off, and for each the command that goes on from there.

    A run sweeps by itself when it begins.

    For example:

    repro unfinished

    repro unfinished --sweep
    """
    place = Site.named(site)
    configure_libraries(place.root)
    if sweep:
        ended = runs.sweep(place)
        if server_configured():
            from flows.orchestration.prefect_flows import close_abandoned_runs

            ended = max(ended, close_abandoned_runs())
        say(f"ended {ended} that were held to be running" if ended else "nothing was held to be running that is gone")
    found = runs.unfinished(place)
    if as_json:
        print(json.dumps([each.as_json() for each in found], ensure_ascii=False))
        return
    for each in found:
        print(each.command)
    if not found:
        say("no run was cut off")
