"""How this project opens MLflow's store: quietly, patiently, and one process at a time where it must be made first."""

import logging
import os
from pathlib import Path
from typing import Any

from infra.locks import held
from infra.service import credentials

SQLITE_SECONDS = 60
"""How long a process waits for others that write to the same SQLite file."""


def client(uri: str) -> Any:
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
    credentials.offer()
    from mlflow import MlflowClient

    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.ERROR)
    file = sqlite_file(uri)
    if not file:
        return MlflowClient(uri)
    with held(file.with_name(f"{file.name}.lock"), lambda _: None):
        opened = MlflowClient(patient(uri))
        opened.search_registered_models(max_results=1)  # the registry's half of the tables is made here
    return opened


def sqlite_file(uri: str) -> Path | None:
    """The file of a ``sqlite:///`` address."""
    return Path(uri.removeprefix("sqlite:///").partition("?")[0]) if uri.startswith("sqlite:///") else None


def patient(uri: str) -> str:
    """``uri`` such that SQLite waits for other writers longer than its default of 5 s."""
    return f"{uri}?timeout={SQLITE_SECONDS}" if sqlite_file(uri) and "?" not in uri else uri
