"""``repro up``."""

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from flows.runner.interrupted import sweep, unfinished
from flows.views.service_view import state_table
from flows.views.terminal import console, say
from infra.errors import BadConfiguration, JobFailed
from infra.servers.credentials import read_credentials
from infra.servers.environment import configure_libraries
from infra.service import databases, lifecycle
from infra.service.settings import MLFLOW_PORT, PREFECT_PORT, Service
from infra.site import Site

GPU_WORKERS = int(Path("/dev/nvidia0").exists())


def up(
    *,
    host: Annotated[
        str, Parameter(help="where both servers listen; beyond loopback only with credentials")
    ] = "127.0.0.1",
    prefect_port: int = PREFECT_PORT,
    mlflow_port: int = MLFLOW_PORT,
    cpu: Annotated[int, Parameter(help="workers for the pool cpu")] = 1,
    gpu: Annotated[int, Parameter(help="workers for the pool gpu; several have a device each")] = GPU_WORKERS,
    database_url: Annotated[
        str,
        Parameter(help="postgresql://user@host/name: databases name_prefect and name_mlflow (REPRO_DATABASE_URL)"),
    ] = "",
    foreground: Annotated[bool, Parameter(negative=(), help="stay, and end it all on Ctrl-C or SIGTERM")] = False,
) -> None:
    """Start Prefect's server, MLflow's and workers, and keep them running; what runs already stays as it is.

    While it is up, commands in the same REPRO_ROOT use it. REPRO_AUTH=user:password, or REPRO_AUTH_FILE, asks everybody
    for these credentials.

    For example:

    repro up

    repro up --gpu 2 --database-url postgresql://repro@127.0.0.1/repro

    REPRO_AUTH_FILE=~/.repro-auth repro up --host 0.0.0.0
    """
    site = Site.named()
    service = Service(site.root.absolute(), site.remote, host, prefect_port, mlflow_port, cpu, gpu)
    outer = os.environ | ({databases.VARIABLE: database_url} if database_url else {})
    lifecycle.check(service, outer)
    if foreground and lifecycle.running(service.folder):
        raise BadConfiguration("--foreground starts it anew, but it is up already: `repro down` ends it")
    with _ended_with(service) if foreground else nullcontext():
        found = lifecycle.up(service, outer, say, foreground)
        _show(found, outer)
        _offer(site)
        if foreground and found.supervisor:
            status = found.supervisor.wait()
            raise JobFailed(f"the supervisor ended with status {status}; see {service.folder / 'logs'}")


@contextmanager
def _ended_with(service: Service) -> Iterator[None]:
    """The service ends with the block; Ctrl-C and SIGTERM are how that is meant to come."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        say("ending all of it")
    finally:
        lifecycle.down(service.folder, say)


def _show(found: lifecycle.RunningService, outer: Mapping[str, str]) -> None:
    if not found.supervisor:
        say(f"up already, as it was started; `repro down` ends it, {found.service.folder / 'logs'} holds its logs")
    error = console()
    error.print(state_table(found.states))
    for line in _exports(found.service, outer):
        error.print(line, markup=False, soft_wrap=True)


def _offer(site: Site) -> None:
    """End what a machine that went down left "Running", and say how each run goes on."""
    configure_libraries(site.root)
    sweep(Site.named())
    if left := unfinished(site):
        say("these runs were cut off; what they finished is kept, and they go on by:")
        for each in left:
            say(each.command)


def _exports(service: Service, outer: Mapping[str, str]) -> list[str]:
    there = service.addresses if service.on_loopback else service.addresses_at(socket.gethostname())
    lines = ["", *(f"export {name}={value}" for name, value in there.exports.items())]
    if read_credentials(outer):
        lines.append("and REPRO_AUTH or REPRO_AUTH_FILE as here, for whoever asks")
    return lines
