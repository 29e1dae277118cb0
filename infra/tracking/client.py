"""Opens MLflow's store, quietly and with short retries, and ends runs whose process is gone.

A SQLite file is created by one process at a time. The process of a run is recorded in its tag ``process``.
"""

import logging
import os
from typing import Any

from infra.processes.identity import process_state
from infra.processes.locks import file_lock
from infra.servers import credentials
from infra.servers.sqlite_addresses import sqlite_file

SQLITE_SECONDS = 60
"""How long a process waits for others that write to the same SQLite file."""
OPEN_ATTEMPTS = 4
"""Times a database that cannot be opened is tried, 0.1, 0.3 and 0.7 s apart; the library's own ten take two minutes."""


def mlflow_client(uri: str) -> Any:
    """An MlflowClient for ``uri``, without telemetry and chatter. The first one of a process costs about 3 s.

    A SQLite file is created under a lock, since several processes may come to it at once.
    """
    for variable, value in (
        ("MLFLOW_DISABLE_TELEMETRY", "true"),
        ("DO_NOT_TRACK", "true"),
        ("MLFLOW_LOGGING_LEVEL", "ERROR"),
        ("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false"),
        ("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true"),  # stdout is the caller's
        # The library's own patience is four minutes for each request.
        ("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2"),
        ("MLFLOW_HTTP_REQUEST_TIMEOUT", "30"),
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
    with file_lock(file.with_name(f"{file.name}.lock"), lambda _: None):
        opened = MlflowClient(with_sqlite_timeout(uri))
        opened.search_registered_models(max_results=1)  # the registry's half of the tables is made here
    return opened


def with_sqlite_timeout(uri: str) -> str:
    """``uri`` such that SQLite waits for other writers longer than its default of 5 s."""
    return f"{uri}?timeout={SQLITE_SECONDS}" if sqlite_file(uri) and "?" not in uri else uri


PROCESS_TAG = "process"
FAILURE = "its process is gone"


def end_abandoned(uri: str) -> int:
    """End as KILLED each RUNNING run whose process on this machine is gone; raises what MLflow raises."""
    store = mlflow_client(uri)
    experiments = [experiment.experiment_id for experiment in store.search_experiments()]
    page, running = "", "attributes.status = 'RUNNING' and tags.process != ''"
    gone: list[str] = []
    while experiments:
        found = store.search_runs(experiments, running, page_token=page or None)
        gone += [run.info.run_id for run in found if process_state(run.data.tags.get(PROCESS_TAG, "")) == "gone"]
        if not (page := found.token or ""):
            break
    for run_id in gone:
        store.set_tag(run_id, "failure", FAILURE)
        store.set_terminated(run_id, "KILLED")
    return len(gone)
