"""Starts and stops a service: ends leftover processes, starts the supervisor, waits for health, writes addresses."""

import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from infra.errors import BadConfiguration, JobFailed
from infra.processes import signals
from infra.processes.children import last_line
from infra.processes.identity import process_identity
from infra.processes.locks import file_lock
from infra.servers import mlflow_sqlite
from infra.servers.environment import private_folder
from infra.servers.loopback import free_ports, on_loopback
from infra.servers.service_settings import FILE, Service, read
from infra.servers.temporary_prefect import start_lock
from infra.service import databases, supervision
from infra.service.applications import MLFLOW_HOSTS, PREFECT_HOSTS, allowed_hosts
from infra.service.databases import Databases
from infra.service.supervision import ProgramState, states
from infra.tracking.client import create_lock

HEALTHY_SECONDS = 300.0
"""How long to wait for health; creating two databases takes 40 s on idle cores."""
POLL_SECONDS = 0.5
Say = Callable[[str], None]


@dataclass(frozen=True)
class RunningService:
    """A running service: its settings, its programs' states, and its supervisor if this call started it."""

    service: Service
    states: list[ProgramState]
    supervisor: "subprocess.Popen[bytes] | None" = None


def check(service: Service, outer: Mapping[str, str]) -> None:
    """Raise BadConfiguration for unusable or unsafe settings, before anything changes."""
    if not on_loopback(service.host) and not service.closed:
        raise BadConfiguration(
            f"--host {service.host} opens both servers to other machines, which needs credentials: set REPRO_AUTH to "
            "user:password, or REPRO_AUTH_FILE to a file with that line"
        )
    if outer.get(databases.VARIABLE):
        Databases(outer[databases.VARIABLE])
    for variable in (PREFECT_HOSTS, MLFLOW_HOSTS):
        allowed_hosts(variable, service, outer)


def up(service: Service, outer: Mapping[str, str], say: Say, foreground: bool = False) -> RunningService:
    """Start the service and wait until it is healthy; a running service keeps its settings.

    Raises BadConfiguration for a port in use, a database that cannot be created, or ``foreground`` and a running
    service, NetworkFault for an unreachable database, JobFailed if a program does not start. After an error no process
    of this call is left running.
    """
    service.folder.mkdir(parents=True, exist_ok=True)
    service.folder.chmod(0o700)  # it holds the supervisor's socket and all logs
    with file_lock(
        service.folder / "up.lock", lambda holder: say(f"{holder} is starting or stopping the service: waiting")
    ):
        current = running(service.folder)
        if current and foreground:
            raise BadConfiguration(
                "--foreground needs to start the service, but it is running already; stop it with `repro down`"
            )
        if current:
            for name in supervision.revive(current):
                say(f"{name} had stopped: restarted")
            programs = _wait_until_healthy(current, say)
            return RunningService(current if current.supervisor else _publish(current), programs)
        if count := supervision.end_leftovers(service.folder):
            say(f"ended {count} processes of a killed service")
        service.check_ports()
        _prepare(service, outer, say)
        # A run that starts a server on the same databases may create their tables.
        waiting = lambda holder: say(f"{holder} starts a server on the same database: waiting")  # noqa: E731
        prefect = file_lock(start_lock(service.place / "prefect"), waiting)
        with prefect, file_lock(create_lock(service.place / "mlflow.db"), waiting):
            return _start(replace(service, health_ports=free_ports(len(service.pools))), outer, say, foreground)


def down(folder: Path, say: Say) -> bool:
    """End the service of ``folder`` and all its processes; returns whether there were any."""
    if not folder.is_dir():
        return False
    with file_lock(folder / "up.lock", lambda holder: say(f"{holder} is starting or stopping the service: waiting")):
        try:
            return supervision.stop(read(folder))
        except FileNotFoundError:
            return bool(supervision.end_leftovers(folder))


def running(folder: Path) -> Service | None:
    """Return the service if its supervisor answers, otherwise None."""
    try:
        service = read(folder)
    except OSError:
        return None
    return service if supervision.supervisor_of(service) else None


def _start(service: Service, outer: Mapping[str, str], say: Say, foreground: bool) -> RunningService:
    before = None
    with suppress(OSError):
        before = read(service.folder)
    service.write()
    try:
        process = supervision.start(service, outer, foreground)
        programs = _wait_until_healthy(service, say)
    except BaseException:
        supervision.stop(service)
        # The last service that was up says where the databases are.
        if before:
            before.write()
        else:
            (service.folder / FILE).unlink()
        raise
    return RunningService(_publish(service), programs, process)


def _publish(service: Service) -> Service:
    """Write the supervisor's identity, by which runs find the service."""
    published = replace(service, supervisor=process_identity(supervision.supervisor_of(service)))
    published.write()
    return published


def _prepare(service: Service, outer: Mapping[str, str], say: Say) -> None:
    private_folder(service.place / "prefect")
    (service.place / "mlflow-artifacts").mkdir(exist_ok=True)
    if address := outer.get(databases.VARIABLE):
        for name in Databases(address).create_missing():
            say(f"created the database {name}")
    else:
        mlflow_sqlite.check_version(service.place / "mlflow.db")


def _wait_until_healthy(service: Service, say: Say) -> list[ProgramState]:
    deadline = time.monotonic() + HEALTHY_SECONDS
    healthy = set[str]()
    while True:
        programs = states(service)
        for state in programs:
            if state.healthy and state.name not in healthy:
                healthy.add(state.name)
                say(f"{state.name} is healthy")
        bad = [state for state in programs if state.state == "fatal"]
        if programs and all(state.healthy for state in programs):
            return programs
        if not programs:
            raise JobFailed(f"the supervisor ended; see {service.folder / 'logs'}")
        if bad or time.monotonic() > deadline:
            first = (bad or [state for state in programs if not state.healthy])[0]
            what = f"{first.name} did not come up ({first.message or first.state})"
            raise JobFailed(f"{what}; see {first.log}: {last_line(Path(first.log))}")
        signals.wait(POLL_SECONDS)
