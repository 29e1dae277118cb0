"""``repro deploy``."""

from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from flows.runner.paper import PaperRequest
from flows.runner.request import RunRequest
from flows.runs.completion import RUN_NAMES, OverridesOption
from flows.views.terminal import say
from infra.errors import BadConfiguration
from infra.servers.environment import configure_libraries, server_configured
from infra.site import Site

FILE = Path(__file__).resolve().parents[1] / "prefect.yaml"
"""In a checkout, a link to the file at the top; in an installed package, a copy."""


def deploy(
    *runs: Annotated[str, RUN_NAMES],
    activate: Annotated[bool, Parameter(help="switch on the schedules of the named deployments")] = False,
    pause: Annotated[bool, Parameter(help="switch off the schedules of the named deployments")] = False,
    cron: Annotated[
        str, Parameter(help="times of their schedules in UTC, as '0 22 * * 5' (Fridays at 22:00); switches them on")
    ] = "",
    every: Annotated[
        str, Parameter(help="run at this interval, such as 30m, 6h or 2d, instead of --cron; switches the schedules on")
    ] = "",
    overrides: Annotated[
        OverridesOption,
        Parameter(help="set one field of the named runs, as in `repro run`; repeatable; '' removes earlier settings"),
    ] = (),
    check: Annotated[
        bool, Parameter(help="deploy a rerun of the named runs in a folder of its own, with `repro check` at its end")
    ] = False,
) -> None:
    """Let Prefect's workers run these runs (default: all), from Prefect's page or on a schedule.

    Creates or updates a deployment of each run, and missing work pools, at the server of `repro up` or PREFECT_API_URL.
    A repeated call keeps ids, the state of schedules, their times from --cron or --every, and each deployment's --set.

    For example:

    repro deploy demo multi30k-ende --activate

    repro deploy demo --cron "0 22 * * 5"

    repro deploy demo --check --cron "0 1 * * *"
    """
    if (check or overrides) and not runs:
        option = "--check" if check else "--set"
        raise BadConfiguration(f"{option} needs the names of runs, for example `repro deploy demo {option} …`")
    if check and overrides:
        raise BadConfiguration("--check excludes --set: it repeats a run whose results are recorded")
    if cron and every:
        raise BadConfiguration("--cron excludes --every; give one of them")
    if (activate or cron or every) and pause:
        raise BadConfiguration("--pause excludes --activate, --cron and --every; give one of them")
    if (activate or cron or every or pause) and not runs:
        raise BadConfiguration(
            "--activate, --pause, --cron and --every need names of deployments, as in `repro deploy demo --activate`"
        )
    for run in runs if any(overrides) else ():
        request = PaperRequest if run == "paper" else partial(RunRequest, run)
        request(overrides=overrides).resolve()  # rejects a wrong field now, not at night
    configure_libraries(Site.named().root)
    if not server_configured():
        raise BadConfiguration(
            "no Prefect server is configured: start one with `repro up`, or set PREFECT_API_URL to that of yours, "
            "for example http://127.0.0.1:4200/api"
        )
    from flows.orchestration.deploy import check_of, deployments_of, own_times
    from flows.orchestration.deploy import deploy as deploy_chosen
    from infra.servers.prefect_states import ensure_heartbeat_automation

    switch: Literal["on", "off", "as it is"] = "on" if activate or cron or every else "off" if pause else "as it is"
    chosen = [check_of(run) for run in runs] if check else deployments_of(FILE, runs, overrides)
    deploy_chosen(chosen, switch, say, own_times(cron, every))
    ensure_heartbeat_automation()
