"""Python loads this at its start where this folder is in PYTHONPATH: a Prefect server of a test gets ready tables.

A new root costs Prefect seven CPU seconds of migrations. The first server of a test session lets Prefect make an empty
database once, in the folder ``REPRO_TEST_TABLES``; every server copies it where its own database does not exist yet.
"""

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

SERVERS = ("infra.servers.temporary_prefect:application", "infra.service.applications:prefect")


def starts_a_server() -> bool:
    words = sys.orig_argv
    return any(name in words for name in SERVERS) or words[1:5] == ["-m", "prefect", "server", "start"]


def own_database() -> Path | None:
    """The SQLite file of the server of this process; None for PostgreSQL."""
    address = os.environ.get("PREFECT_SERVER_DATABASE_CONNECTION_URL", "")
    if not address:
        return Path(os.environ["PREFECT_HOME"], "prefect.db") if "PREFECT_HOME" in os.environ else None
    path = address.partition("?")[0].removeprefix("sqlite+aiosqlite:///")
    return Path(unquote(path.removeprefix("file:"))) if path != address else None


def make(database: Path) -> None:
    home = database.with_name("home")
    variables = {"PREFECT_HOME": f"{home}", "DO_NOT_TRACK": "true", "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
    outer = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    command = [sys.executable, "-m", "prefect", "server", "database", "upgrade", "-y"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=outer | variables)
    (home / "prefect.db").replace(database)


def copy_tables(folder: Path, file: Path) -> None:
    ready = folder / "prefect.db"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ready.exists():
            make(ready)
    file.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(ready, file)


if "REPRO_TEST_TABLES" in os.environ and starts_a_server():
    database = own_database()
    if database and not database.exists():
        copy_tables(Path(os.environ["REPRO_TEST_TABLES"]), database)
