"""``repro deploy``."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from flows.runs.completion import RUN_NAMES
from flows.views.terminal import say
from infra.errors import BadConfiguration
from infra.servers.environment import configure_libraries, server_configured
from infra.site import Site

FILE = Path(__file__).resolve().parents[1] / "prefect.yaml"
"""A link to the file at the top of a checkout; a copy in an installed package."""


def deploy(
    *runs: Annotated[str, RUN_NAMES],
    activate: Annotated[bool, Parameter(help="switch on the schedules of the named deployments", negative=())] = False,
    pause: Annotated[bool, Parameter(help="switch off the schedules of the named deployments", negative=())] = False,
    cron: Annotated[
        str, Parameter(help="times of their schedules in UTC, as '0 22 * * 5' (Fridays at 22:00); switches them on")
    ] = "",
    check: Annotated[
        bool,
        Parameter(
            help="deploy a rerun of the named runs in a folder of its own, with `repro check` at its end", negative=()
        ),
    ] = False,
) -> None:
    """Create or update the deployments of these runs, by default all, at the Prefect server of PREFECT_API_URL.

    Creates missing work pools. May be repeated: ids stay, a schedule stays switched on or off as it is, and keeps the
    times that --cron gave it.

    For example:

    repro deploy

    repro deploy demo multi30k-ende --activate

    repro deploy my-run.toml --activate

    repro deploy demo --cron "0 22 * * 5"

    repro deploy demo --check --cron "0 1 * * *"
    """
    if check and not runs:
        raise BadConfiguration("--check needs the names of runs, for example `repro deploy demo --check`")
    if (activate or cron) and pause:
        raise BadConfiguration("--pause excludes --activate and --cron; give one of them")
    configure_libraries(Site.named().root)
    if not server_configured():
        raise BadConfiguration(
            "no Prefect server is configured: start one with `repro up`, or set PREFECT_API_URL to that of yours, "
            "for example http://127.0.0.1:4200/api"
        )
    from flows.orchestration.deploy import deploy as deploy_file
    from flows.orchestration.deploy import deploy_checks
    from infra.servers.prefect_states import ensure_heartbeat_automation

    switch: Literal["on", "off", "as it is"] = "on" if activate or cron else "off" if pause else "as it is"
    if check:
        deploy_checks(runs, switch, say, cron)
    else:
        deploy_file(FILE, runs, switch, say, cron)
    ensure_heartbeat_automation()
