"""Python loads this at its start where this folder is in PYTHONPATH: new databases of a test get ready tables.

A new root costs Prefect seven CPU seconds of migrations, and MLflow two. The first process of a test session that needs
them makes an empty database once, in the folder ``REPRO_TEST_TABLES``; every new database is a copy of it.
"""

import fcntl
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import unquote

SERVERS = ("infra.servers.temporary_prefect:application", "infra.service.applications:prefect")
MLFLOW_TABLES = "mlflow.store.db.utils"


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


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def make_prefect(database: Path) -> None:
    home = database.with_name("home")
    variables = {"PREFECT_HOME": f"{home}", "DO_NOT_TRACK": "true", "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
    outer = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    command = [sys.executable, "-m", "prefect", "server", "database", "upgrade", "-y"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=outer | variables)
    (home / "prefect.db").replace(database)


def copy_prefect(folder: Path, file: Path) -> None:
    ready = folder / "prefect.db"
    with locked(folder):
        if not ready.exists():
            make_prefect(ready)
    file.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(ready, file)


class ReadyMlflowTables:
    """A finder of modules that replaces MLflow's function that fills a new database, when MLflow is imported."""

    def __init__(self, folder: Path) -> None:
        self.ready = folder / "mlflow.db"

    def find_spec(self, fullname: str, _path: object, _target: object = None) -> Any:
        if fullname != MLFLOW_TABLES:
            return None
        sys.meta_path.remove(self)
        spec: Any = find_spec(fullname)
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            self.replace(module)

        spec.loader.exec_module = exec_module
        return spec

    def replace(self, utils: Any) -> None:
        migrate = utils._initialize_tables

        def fill(engine: Any) -> None:
            if engine.dialect.name != "sqlite" or not utils._is_empty_database(engine):
                migrate(engine)
                return
            with locked(self.ready.parent):
                if not self.ready.exists():
                    unfinished = self.ready.with_suffix(".part")
                    unfinished.unlink(missing_ok=True)
                    migrate(utils.create_sqlalchemy_engine(f"sqlite:///{unfinished}"))
                    unfinished.replace(self.ready)
            with closing(sqlite3.connect(self.ready)) as source, engine.connect() as connection:
                source.backup(connection.connection.dbapi_connection)

        utils._initialize_tables = fill


if "REPRO_TEST_TABLES" in os.environ:
    tables = Path(os.environ["REPRO_TEST_TABLES"])
    sys.meta_path.insert(0, ReadyMlflowTables(tables))  # type: ignore[arg-type]
    if starts_a_server():
        database = own_database()
        if database and not database.exists():
            copy_prefect(tables, database)
