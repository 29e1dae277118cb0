"""How this project opens MLflow's store: quietly, patiently, and one process at a time where it must be made first."""

import logging
import os
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from infra.locks import held
from infra.service import credentials

SQLITE_SECONDS = 60
"""How long a process waits for others that write to the same SQLite file."""
TRIES_TO_OPEN = 4
"""Times a database that cannot be opened is tried, 0.1, 0.3 and 0.7 s apart; the library's own ten take two minutes."""


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
    from mlflow.store.db import utils

    utils.MAX_RETRY_COUNT = TRIES_TO_OPEN
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.ERROR)
    file = sqlite_file(uri)
    if not file:
        return MlflowClient(uri)
    with held(file.with_name(f"{file.name}.lock"), lambda _: None):
        opened = MlflowClient(patient(uri))
        opened.search_registered_models(max_results=1)  # the registry's half of the tables is made here
    return opened


def sqlite_uri(file: Path, driver: str = "sqlite") -> str:
    """SQLAlchemy's address of a file.

    In it ``%`` and ``?`` would mean something else than themselves. Where one is escaped, slashes are as well: MLflow
    creates the folders of what it takes for a path without unescaping it.
    """
    path = f"{file.absolute()}"
    return f"{driver}:///{quote(path, safe='') if needs_quoting(path) else path}"


def needs_quoting(path: str) -> bool:
    """Whether SQLAlchemy would read another path out of an address that holds ``path`` as it is."""
    return "%" in path or "?" in path


def sqlite_file(uri: str) -> Path | None:
    """The file of a ``sqlite:///`` address."""
    return Path(unquote(uri.removeprefix("sqlite:///").partition("?")[0])) if uri.startswith("sqlite:///") else None


def patient(uri: str) -> str:
    """``uri`` such that SQLite waits for other writers longer than its default of 5 s."""
    return f"{uri}?timeout={SQLITE_SECONDS}" if sqlite_file(uri) and "?" not in uri else uri
