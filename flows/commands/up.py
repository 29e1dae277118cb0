"""``repro up``."""

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from shlex import quote
from typing import Annotated

from cyclopts import Parameter

from flows.runner.interrupted import close_dead_runs, unfinished
from flows.views.tables import state_table
from flows.views.terminal import say, show
from infra.errors import JobFailed
from infra.processes.gpu_locks import visible_gpus
from infra.servers.credentials import FILE_VARIABLE, read_credentials
from infra.servers.environment import HOME_SETTINGS, NO_TELEMETRY, configure_libraries
from infra.servers.service_settings import MLFLOW_PORT, PREFECT_PORT, Service
from infra.service import databases, lifecycle
from infra.site import Site

LIBRARY_VARIABLES = (
    "PREFECT_HOME",
    "PREFECT_API_URL",
    "PREFECT_SERVER_DATABASE_CONNECTION_URL",
    *NO_TELEMETRY,
    *HOME_SETTINGS,
)
"""Variables of ``configure_libraries`` that `prefect` and `mlflow` need to find the same state."""
GPU_WORKERS = int(bool(visible_gpus(os.environ)))


def up(
    *,
    host: Annotated[
        str, Parameter(help="address of both servers; any other than loopback needs credentials")
    ] = "127.0.0.1",
    prefect_port: int = PREFECT_PORT,
    mlflow_port: int = MLFLOW_PORT,
    cpu: Annotated[int, Parameter(help="number of workers for the pool cpu")] = 1,
    gpu: Annotated[
        int, Parameter(help="number of workers for the pool gpu; each job locks its own devices")
    ] = GPU_WORKERS,
    database_url: Annotated[
        str,
        Parameter(
            help="postgresql://user@host/name: use the databases name_prefect and name_mlflow (or REPRO_DATABASE_URL); "
            "copy them with pg_dump before you upgrade"
        ),
    ] = "",
    foreground: Annotated[bool, Parameter(help="do not return; stop everything on Ctrl-C or SIGTERM")] = False,
    print_env: Annotated[
        bool,
        Parameter(
            help="start nothing; print shell variables with which prefect and mlflow commands use this root and "
            "its servers"
        ),
    ] = False,
) -> None:
    """Start Prefect's server, MLflow's server and workers, and keep them running. A running service is not changed.

    While it is up, all commands with the same REPRO_ROOT use it. To require credentials from every client, set
    REPRO_AUTH=user:password, or REPRO_AUTH_FILE to a file with that line.

    For example:

    repro up --gpu 2 --database-url postgresql://repro@127.0.0.1/repro

    REPRO_AUTH_FILE=~/.repro-auth repro up --host 0.0.0.0

    eval "$(repro up --print-env)"
    """
    site = Site.named()
    if print_env:
        _print_environment(site)
        return
    outer = os.environ | ({databases.VARIABLE: database_url} if database_url else {})
    closed = bool(read_credentials(outer))
    postgresql = bool(outer.get(databases.VARIABLE))
    place = site.root.absolute()
    service = Service(place, site.remote, host, prefect_port, mlflow_port, cpu, gpu, closed, postgresql)
    lifecycle.check(service, outer)
    running = lifecycle.up(service, outer, say, foreground)
    with _stop_at_exit(service) if foreground else nullcontext():
        _show(running)
        _close_and_list_interrupted(site)
        if foreground and running.supervisor and (status := running.supervisor.wait()):
            raise JobFailed(f"the supervisor exited with status {status}; see {service.folder / 'logs'}")


@contextmanager
def _stop_at_exit(service: Service) -> Iterator[None]:
    """Stop the service when the block ends, usually by Ctrl-C or SIGTERM."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        say("stopping the service")
    finally:
        lifecycle.down(service.folder, say)


def _show(running: lifecycle.RunningService) -> None:
    if not running.supervisor:
        logs = running.service.folder / "logs"
        say(f"the service is up already and was not changed; `repro down` stops it; logs are in {logs}")
    exports = (f"export {name}={value}" for name, value in running.service.exports.items())
    show(state_table(running.states), "", *exports, aside=True)
    if running.service.closed:
        show("Clients also need the same REPRO_AUTH or REPRO_AUTH_FILE.", aside=True)


def _close_and_list_interrupted(site: Site) -> None:
    """Close runs that a crashed machine left "Running", and print the commands that resume them."""
    configure_libraries(site.root)
    close_dead_runs(Site.named())
    if left := unfinished(site):
        say("these runs were interrupted; their finished stages are kept. To resume them:")
        for each in left:
            say(each.command)


def _print_environment(site: Site) -> None:
    """Print lines for the shell. They contain no password, only its variable or file."""
    configure_libraries(site.root)
    variables = {"REPRO_ROOT": site.remote or f"{site.root.absolute()}", "MLFLOW_TRACKING_URI": site.tracking}
    variables |= {name: os.environ[name] for name in LIBRARY_VARIABLES if name in os.environ}
    print('# for sh, bash and zsh: eval "$(repro up --print-env)"')
    for name, value in variables.items():
        print(f"export {name}={quote(value)}")
    if read_credentials(os.environ):  # the variables of ``Credentials.for_clients``
        file = os.environ.get(FILE_VARIABLE, "")
        held = '"$REPRO_AUTH"' if os.environ.get("REPRO_AUTH") else f'"$(cat {quote(f"{Path(file).absolute()}")})"'
        print(f"export PREFECT_API_AUTH_STRING={held}")
        print('export MLFLOW_TRACKING_USERNAME="${PREFECT_API_AUTH_STRING%%:*}"')
        print('export MLFLOW_TRACKING_PASSWORD="${PREFECT_API_AUTH_STRING#*:}"')
    programs = Path(sys.executable).parent
    if shutil.which("prefect") != f"{programs / 'prefect'}":  # else the shell finds this environment's programs
        print(f'export PATH={quote(f"{programs}")}:"$PATH"')
