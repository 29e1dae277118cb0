"""Addresses of pages in MLflow's UI, and the files of a run's page, found without importing MLflow."""

import json
import sqlite3
import urllib.parse
import urllib.request
from contextlib import closing
from pathlib import Path

from infra.servers import credentials
from infra.servers.sqlite_addresses import sqlite_file

SERVER_TIMEOUT_SECONDS = 5.0


def experiment_page(uri: str, name: str) -> str:
    """The address, below that of MLflow's UI, of the table with the experiment's runs; "" if it cannot be found.

    The UI's start page is one for chat applications, and so is an experiment's address without ``runs``.
    """
    try:
        file = sqlite_file(uri)
        found = _id_in_file(file, name) if file else _id_at_server(uri, name)
    except (OSError, ValueError, KeyError, sqlite3.Error):
        return ""
    return f"#/experiments/{found}/runs" if found else ""


def _id_in_file(file: Path, name: str) -> str:
    address = f"{file.absolute().as_uri()}?mode=ro"
    with closing(sqlite3.connect(address, uri=True)) as connection:
        found = connection.execute("SELECT experiment_id FROM experiments WHERE name = ?", (name,)).fetchone()
    return f"{found[0]}" if found else ""


def _id_at_server(uri: str, name: str) -> str:
    query = urllib.parse.urlencode({"experiment_name": name})
    address = f"{uri.rstrip('/')}/api/2.0/mlflow/experiments/get-by-name?{query}"
    request = urllib.request.Request(address, headers=credentials.mlflow_header())
    with urllib.request.urlopen(request, timeout=SERVER_TIMEOUT_SECONDS) as response:
        return f"{json.load(response)['experiment']['experiment_id']}"
