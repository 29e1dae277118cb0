"""Opens MLflow's client without telemetry or log lines and with short retries; ends runs of dead processes.

A run's tag ``process`` names the process that executes it.
"""

import json
import logging
import os
import sys
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from infra.errors import BadConfiguration, NetworkFault
from infra.guards.address_secrets import public_text
from infra.processes.identity import process_state
from infra.processes.locks import file_lock
from infra.servers import credentials, mlflow_sqlite
from infra.servers.sqlite_addresses import sqlite_file

SQLITE_SECONDS = 60
"""How long a process waits for other writers of the same SQLite file."""
REQUEST_SECONDS = 30
SERVER_SQLITE_SECONDS = REQUEST_SECONDS - 5
"""The same for MLflow's server: if it answered after the client gave up, the repeated request would register a second
version."""
OPEN_ATTEMPTS = 4
"""Attempts to open a database, 0.1, 0.3 and 0.7 s apart; MLflow's ten attempts take two minutes."""
PAGE_SIZE = 1000
PROCESS_TAG = "process"
FAILURE = "its process is gone"
SERVER_TIMEOUT_SECONDS = 5.0
ERRORS = (
    ("mlflow.exceptions", "MlflowException"),
    ("sqlalchemy.exc", "SQLAlchemyError"),
    ("alembic.util.exc", "CommandError"),
    ("botocore.exceptions", "BotoCoreError"),
    ("botocore.exceptions", "ClientError"),
    ("boto3.exceptions", "Boto3Error"),
)


def mlflow_client(uri: str) -> Any:
    """Return an MlflowClient for ``uri``. The first client of a process takes about 3 s.

    A SQLite file is created under a lock, because several processes may open it at once.
    """
    for variable, value in (
        ("MLFLOW_DISABLE_TELEMETRY", "true"),
        ("DO_NOT_TRACK", "true"),
        ("MLFLOW_LOGGING_LEVEL", "ERROR"),
        ("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false"),
        ("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true"),  # stdout belongs to the command
        # By default a request may take four minutes.
        ("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2"),
        ("MLFLOW_HTTP_REQUEST_TIMEOUT", f"{REQUEST_SECONDS}"),
    ):
        os.environ.setdefault(variable, value)
    credentials.export_to_environment()
    from mlflow import MlflowClient
    from mlflow.store.db import utils

    utils.MAX_RETRY_COUNT = OPEN_ATTEMPTS
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.ERROR)
    file = sqlite_file(uri)
    if not file:
        return MlflowClient(uri)
    with ExitStack() as held:
        try:
            held.enter_context(file_lock(create_lock(file), lambda _: None))
        except OSError:
            if not file.exists():
                raise
            # On a read-only disk no process creates tables in the existing file, so no lock is needed.
        client = MlflowClient(with_sqlite_timeout(uri))
        client.search_registered_models(max_results=1)  # creates the registry's tables
        return client


def mlflow_errors() -> tuple[type[Exception], ...]:
    """Return the errors of MLflow's client when its server, database or artifact store fails, for ``except``."""
    loaded = [getattr(sys.modules[module], name) for module, name in ERRORS if module in sys.modules]
    return (OSError, *loaded)


def create_lock(file: Path) -> Path:
    """Return the lock of the process that creates the tables of MLflow's SQLite ``file``."""
    return file.with_name(f"{file.name}.lock")


def refused(uri: str, what: str) -> NetworkFault:
    """Return a fault "MLflow at ``uri`` ``what``", for example "does not answer", without the password."""
    return NetworkFault(public_text(f"MLflow at {uri} {what}", uri))


@contextmanager
def refusals(uri: str, what: str) -> Iterator[None]:
    """Turn MLflow's errors in this block into the NetworkFault of ``refused``."""
    try:
        yield
    except mlflow_errors() as error:
        raise refused(uri, f"{what}: {error}") from error


def with_sqlite_timeout(uri: str, seconds: int = SQLITE_SECONDS) -> str:
    """Return ``uri`` with a longer wait for other writers than SQLite's default of 5 s."""
    if not sqlite_file(uri) or "timeout=" in uri:
        return uri
    return f"{uri}{'&' if '?' in uri else '?'}timeout={seconds}"


def all_pages(search: Callable[..., Any], *arguments: Any, **named: Any) -> list[Any]:
    """Return all results of a paged search of MLflow's client."""
    from mlflow.utils import get_results_from_paginated_fn

    def page(size: int, token: str | None) -> Any:
        return search(*arguments, **named, max_results=size, page_token=token)

    return list(get_results_from_paginated_fn(page, PAGE_SIZE))


def end_abandoned(uri: str) -> int:
    """End each RUNNING run with a dead process of this machine as KILLED, and fail its models; return their number.

    Raises MLflow's errors.
    """
    client = mlflow_client(uri)
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    running = "attributes.status = 'RUNNING' and tags.process != ''"
    found = all_pages(client.search_runs, experiments, running) if experiments else []
    dead = [run.info for run in found if process_state(run.data.tags.get(PROCESS_TAG, "")) == "gone"]
    for run in dead:
        fail_pending_models(client, run.experiment_id, run.run_id)
        client.set_tag(run.run_id, "failure", FAILURE)
        client.set_terminated(run.run_id, "KILLED")
    return len(dead)


def fail_pending_models(client: Any, experiment_id: str, run_id: str) -> None:
    """Mark each model of a run that a process logged incompletely as FAILED. Raises MLflow's errors."""
    for model in all_pages(client.search_logged_models, [experiment_id], f"source_run_id = '{run_id}'"):
        if model.status == "PENDING":
            client.finalize_logged_model(model.model_id, "FAILED")


def get_json(uri: str, path: str, **query: str | int) -> Any:
    """Send a request to MLflow's server without importing MLflow; return JSON. Raises OSError or ValueError."""
    address = f"{uri.rstrip('/')}/api/2.0/mlflow/{path}?{urllib.parse.urlencode(query)}"
    request = urllib.request.Request(address, headers=credentials.mlflow_header())
    with urllib.request.urlopen(request, timeout=SERVER_TIMEOUT_SECONDS) as response:
        return json.load(response)


def experiment_page(uri: str, name: str) -> str:
    """Return the address, relative to MLflow's UI, of the experiment's table of runs; "" if it cannot be found.

    The UI's start page, and an experiment's address without ``runs``, are pages for chat applications.
    """
    try:
        if file := sqlite_file(uri):
            found = mlflow_sqlite.experiment_id(file, name)
        else:
            found = get_json(uri, "experiments/get-by-name", experiment_name=name)["experiment"]["experiment_id"]
    except (OSError, ValueError, KeyError, BadConfiguration):
        return ""
    return f"#/experiments/{found}/runs" if found else ""
