"""``repro deploy``."""

import os
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from flows.views.terminal import say
from infra.errors import BadConfiguration
from infra.servers.environment import configure_libraries, server_configured
from infra.site import Site

FILE = Path(__file__).resolve().parents[1] / "prefect.yaml"
"""In a checkout a link to the file at its top, in an installed package a copy."""


def deploy(
    *runs: str,
    activate: Annotated[bool, Parameter(help="switch the schedules of these on", negative=())] = False,
    pause: Annotated[bool, Parameter(help="switch them off", negative=())] = False,
    notify: Annotated[
        str,
        Parameter(
            help="post the end of each run, with its scores, to this address (REPRO_NOTIFY_URL); none: to nobody"
        ),
    ] = "",
    file: Annotated[Path, Parameter(help="the deployments")] = FILE,
) -> None:
    """Bring the deployments of these runs, or of all, to the Prefect server that PREFECT_API_URL names.

    Pools are made where they are missing. A second time changes nothing; a schedule stays as somebody switched it.

    For example:

    repro deploy

    repro deploy demo multi30k-ende --activate

    repro deploy --notify https://example.org/hook
    """
    if activate and pause:
        raise BadConfiguration("--activate and --pause exclude each other")
    if not file.is_file():
        raise BadConfiguration(f"no file {str(file)!r} to take deployments from; --file names another")
    configure_libraries(Site.named().root)
    if not server_configured():
        raise BadConfiguration(
            "no Prefect server to deploy to: set PREFECT_API_URL to its address, as in http://127.0.0.1:4200/api"
        )
    from flows.orchestration.deploy import deploy as bring
    from flows.orchestration.notify import notify as tell
    from infra.servers.prefect_states import ensure_heartbeat_automation

    bring(file, runs, "on" if activate else "off" if pause else "as it is", say)
    ensure_heartbeat_automation()
    if address := notify or os.environ.get("REPRO_NOTIFY_URL", ""):
        tell(address, say)
