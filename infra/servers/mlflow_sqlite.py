"""Reads MLflow's SQLite file with SQL. Only this module and ``relocation`` depend on MLflow's tables.

A query takes 2 ms. MLflow's client needs 4.5 s for the same result (200 runs, 50 versions), mostly to be imported and
opened, and every command would wait for it. If the tables are not those of MLflow 3.17 or the file cannot be read, the
functions return None and their callers use the client.
"""

import shlex
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from infra.errors import BadConfiguration
from infra.servers.sqlite_addresses import open_read_only, sqlite_file, sqlite_uri

SCHEMA_REVISION = "dc11669786a5"
"""The last migration of MLflow 3.17."""
VERSIONS = """
SELECT name, version, creation_time, run_id, source, ifnull(tags, '{}'), ifnull(aliases, '[]')
FROM model_versions
LEFT JOIN (SELECT name, version, json_group_object(key, ifnull(value, '')) AS tags
           FROM model_version_tags WHERE :name IN ('', name) GROUP BY name, version) USING (name, version)
LEFT JOIN (SELECT name, version, json_group_array(alias) AS aliases
           FROM registered_model_aliases WHERE :name IN ('', name) GROUP BY name, version) USING (name, version)
WHERE current_stage != 'Deleted_Internal' AND :name IN ('', name)
"""
MODEL_ADDRESS = """
SELECT ifnull(logged.artifact_location, registered.source) FROM model_versions AS registered
LEFT JOIN logged_models AS logged ON registered.source = 'models:/' || logged.model_id
WHERE registered.name = :name AND registered.version = :version
"""


def has_known_schema(connection: sqlite3.Connection) -> bool:
    """Whether the tables are those of MLflow 3.17; False if there are none. Raises sqlite3.DatabaseError."""
    try:
        return connection.execute("SELECT version_num FROM alembic_version").fetchall() == [(SCHEMA_REVISION,)]
    except sqlite3.OperationalError:
        return False


def version_rows(file: Path, name: str = "") -> list[tuple[Any, ...]] | None:
    """Return all versions, or one model's, unordered: name, number, creation (ms), run, source, tags and aliases.

    Tags and aliases are JSON. Raises BadConfiguration for a file that is no database.
    """
    return _query(file, VERSIONS, {"name": name})


def model_address(file: Path, name: str, version: int) -> str | None:
    """Return the address of a version's files; None also for an unknown version.

    A service open to others has written addresses that only its server can read: they become those of its folder.
    """
    rows = _query(file, MODEL_ADDRESS, {"name": name, "version": version})
    folder = (file.absolute().parent / "mlflow-artifacts").as_uri()
    return str(rows[0][0]).replace("mlflow-artifacts:/", f"{folder}/", 1) if rows and rows[0][0] else None


def experiment_id(file: Path, name: str) -> str | None:
    """Return the id of an experiment; None also for an unknown name."""
    rows = _query(file, "SELECT experiment_id FROM experiments WHERE name = :name", {"name": name})
    return f"{rows[0][0]}" if rows else None


def check_database(uri: str) -> None:
    """Raise BadConfiguration if ``uri`` names a SQLite file that is damaged; other stores are not checked."""
    if file := sqlite_file(uri):
        _query(file, "SELECT 1")


def check_version(file: Path) -> None:
    """Raise BadConfiguration for a database of another version of MLflow, which MLflow's server would refuse."""
    revision = _query(file, "SELECT version_num FROM alembic_version", any_version=True)
    if revision and revision != [(SCHEMA_REVISION,)]:
        raise BadConfiguration(
            f"{file} is of another version of MLflow (schema {revision[0][0]}): copy it with `repro backup`, then run "
            f"mlflow db upgrade {shlex.quote(sqlite_uri(file))}"
        )


def _query(
    file: Path, query: str, values: Mapping[str, str | int] | None = None, any_version: bool = False
) -> list[tuple[Any, ...]] | None:
    if not file.exists():
        return None
    try:
        with closing(open_read_only(file)) as connection:
            if any_version or has_known_schema(connection):
                return connection.execute(query, values or {}).fetchall()
            return None
    except sqlite3.OperationalError:  # the file is locked or cannot be opened, which is not damage
        return None
    except sqlite3.DatabaseError as error:
        raise BadConfiguration(f"{file} is not a database of MLflow ({error}): restore or remove it") from error
