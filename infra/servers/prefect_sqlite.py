"""Reads Prefect's SQLite file without importing Prefect, which takes seconds, and without starting its server."""

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path

from infra.processes.identity import process_state
from infra.servers.prefect_states import PROCESS_LABEL, UNFINISHED_STATES
from infra.servers.sqlite_addresses import sqlite_file

DATABASE = "prefect.db"
BUSY_TIMEOUT_SECONDS = 10


def database_file() -> Path | None:
    """The SQLite file that a Prefect server with this process's environment serves; None for another database."""
    address = os.environ.get("PREFECT_SERVER_DATABASE_CONNECTION_URL", "")
    return sqlite_file(address.replace("+aiosqlite", "", 1)) if address else Path(os.environ["PREFECT_HOME"], DATABASE)


def has_abandoned_flow_runs() -> bool:
    """Whether the database that a temporary server would serve has an unfinished flow run whose process is dead.

    False where it cannot be read: it does not exist yet, is another kind of database, or has another schema.
    """
    file = database_file()
    states = ", ".join(f"'{state}'" for state in UNFINISHED_STATES)
    query = f"SELECT labels FROM flow_run WHERE state_type IN ({states})"
    try:
        read_only = f"{file.absolute().as_uri()}?mode=ro" if file else ""
        with closing(sqlite3.connect(read_only, uri=True, timeout=BUSY_TIMEOUT_SECONDS)) as connection:
            labels = [json.loads(text or "{}") for (text,) in connection.execute(query)]
    except (sqlite3.Error, ValueError):
        return False
    return any(process_state(f"{found.get(PROCESS_LABEL, '')}") == "gone" for found in labels if found)
