"""The programs of a service: command lines, environments and addresses for health checks.

Every user of the machine can read command lines, so secrets stay in environments.
"""

import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from infra.processes.children import SAFE_PATH, python_path
from infra.servers import credentials
from infra.servers.credentials import Credentials
from infra.servers.environment import (
    CLIENT_RETRIES,
    HOME_SETTINGS,
    NO_TELEMETRY,
    PERSISTENT_LEASES,
    past_proxies,
    prefect_database,
)
from infra.servers.loopback import on_loopback
from infra.servers.service_settings import Service
from infra.servers.sqlite_addresses import sqlite_uri
from infra.servers.temporary_prefect import PREFECT_ORIGINS, serve
from infra.service import databases
from infra.service.applications import allowed_origins
from infra.service.databases import Databases
from infra.service.process_tags import process_tag
from infra.tracking.client import SERVER_SQLITE_SECONDS, with_sqlite_timeout

VACUUM = "PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED"


@dataclass(frozen=True)
class Program:
    """One child of the supervisor."""

    name: str
    command: tuple[str, ...]
    health: str
    """An address that returns status 200 while the program is healthy."""
    link: str
    """An address for a browser."""
    is_worker: bool = False
    """Workers start after Prefect's server is healthy, and end before the servers."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of this worker only."""


def programs(service: Service) -> tuple[Program, ...]:
    """Return both servers, then the workers."""
    prefect = serve("infra.service.applications:prefect", service.host, service.prefect_port, "warning")
    mlflow = serve("infra.service.applications:mlflow", service.host, service.mlflow_port, "warning")
    ui = service.prefect.removesuffix("/api")
    servers = (
        Program("prefect", prefect, f"{service.prefect}/health", ui),
        Program("mlflow", mlflow, f"{service.mlflow}/health", service.mlflow),
    )
    workers = []
    for (pool, number), port in zip(service.pools, service.health_ports, strict=True):
        name = f"{pool}-{number}"
        shown = ("--name", f"{name} on {socket.gethostname()}", "--with-healthcheck", "--install-policy", "never")
        words = (sys.executable, "-m", "prefect", "worker", "start", "--pool", pool, "--type", "process", *shown)
        link = f"{ui}/v2/work-pools/work-pool/{pool}"
        health = f"http://127.0.0.1:{port}/health"
        variables = {"PREFECT_WORKER_WEBSERVER_HOST": "127.0.0.1", "PREFECT_WORKER_WEBSERVER_PORT": str(port)}
        workers.append(Program(name, words, health, link, is_worker=True, variables=variables))
    return (*servers, *workers)


def environment(service: Service, outer: Mapping[str, str]) -> dict[str, str]:
    """Return the supervisor's environment, which every program inherits: ``outer`` with its secrets, and settings."""
    mirrors = [
        str(Path(place).absolute()) if Path(place).is_dir() else place
        for place in outer.get("REPRO_MIRRORS", "").split()
    ]
    variables = {
        **process_tag(service.folder),
        **NO_TELEMETRY,
        **CLIENT_RETRIES,
        **past_proxies(outer, service.prefect),
        **SAFE_PATH,
        "PYTHONPATH": python_path(outer),
        "PYTHONUNBUFFERED": "1",
        "REPRO_ROOT": service.root,
        "REPRO_MIRRORS": " ".join(mirrors),
        "PREFECT_HOME": str(service.place / "prefect"),
        **{name: outer.get(name, path) for name, path in HOME_SETTINGS.items()},
    }
    for name in ("REPRO_CACHE", credentials.FILE_VARIABLE):
        if outer.get(name):
            variables[name] = str(Path(outer[name]).absolute())
    # The user's own servers or Prefect profile must not redirect these programs.
    others = {"PREFECT_API_URL", "PREFECT_API_KEY", "PREFECT_PROFILE", "MLFLOW_TRACKING_URI"}
    return {name: value for name, value in outer.items() if name not in others} | variables


def environment_of(service: Service, program: Program, outer: Mapping[str, str]) -> dict[str, str]:
    """Return one program's environment: the supervisor's ``outer`` with only this program's secrets."""
    login = credentials.read_credentials(outer)
    variables = process_tag(service.folder, program.name)
    if program.name == "prefect":
        variables |= _prefect(service, login, outer)
    elif program.name == "mlflow":
        variables |= _mlflow(service, outer)
    else:
        variables |= {**service.exports, **program.variables, **(login.for_clients if login else {})}
    # MLflow's application checks the credentials itself. Workers start runs, and runs are clients.
    secrets = {databases.VARIABLE} | ({credentials.VARIABLE} if program.name == "prefect" else set())
    return {name: value for name, value in outer.items() if name not in secrets} | variables


def _prefect(service: Service, login: Credentials | None, outer: Mapping[str, str]) -> dict[str, str]:
    api = service.prefect
    variables = {
        "PREFECT_API_URL": api,
        "PREFECT_UI_API_URL": outer.get("PREFECT_UI_API_URL") or "/api",  # works under any host name
        PREFECT_ORIGINS: ",".join(allowed_origins(PREFECT_ORIGINS, outer)) or api.removesuffix("/api"),
        "PREFECT__SERVER_FINAL": "1",  # like `prefect server start`: 50 MB less memory
        # By default Prefect removes only old events: flow runs and their logs would stay forever.
        VACUUM: outer.get(VACUUM) or "events,flow_runs",
        # The default is an hour: as many runs of a schedule by the minute would start at once after a pause.
        "PREFECT_SERVER_SERVICES_SCHEDULER_MIN_SCHEDULED_TIME": "PT1M",
        **PERSISTENT_LEASES,
        **prefect_database(service.place / "prefect"),
    }
    if outer.get(databases.VARIABLE):
        variables["PREFECT_SERVER_DATABASE_CONNECTION_URL"] = Databases(outer[databases.VARIABLE]).for_prefect
    if login:
        clients = login.for_clients  # Prefect's own services are clients too
        variables |= {**clients, "PREFECT_SERVER_API_AUTH_STRING": clients["PREFECT_API_AUTH_STRING"]}
    return variables


def _mlflow(service: Service, outer: Mapping[str, str]) -> dict[str, str]:
    address = outer.get(databases.VARIABLE, "")
    tables = with_sqlite_timeout(sqlite_uri(service.place / "mlflow.db"), SERVER_SQLITE_SECONDS)
    artifacts = (service.place / "mlflow-artifacts").as_uri()
    # An experiment keeps the address of its artifacts forever. A path also works for runs that open the SQLite file
    # without a service. With artifacts behind the server, other machines can read and write them too.
    paths = on_loopback(service.host) and not service.postgresql
    return {
        "MLFLOW_BACKEND_STORE_URI": Databases(address).for_mlflow if address else tables,
        "MLFLOW_DEFAULT_ARTIFACT_ROOT": artifacts if paths else "mlflow-artifacts:/",
        "MLFLOW_ARTIFACTS_DESTINATION": artifacts,
        # Jobs for evaluation by language models: eight processes that this project does not use.
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "WEB_CONCURRENCY": outer.get("MLFLOW_WORKERS") or "1",  # uvicorn's processes
    }
