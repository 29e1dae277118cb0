"""Reads model versions from MLflow's SQLite file without importing MLflow.

The import takes seconds, and so does a list of 1,000 versions through the client, which makes an object of every tag.
"""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

from infra.errors import BadConfiguration
from infra.servers.mlflow_schema import has_known_schema
from infra.servers.sqlite_addresses import sqlite_file
from infra.tracking.model_version import Version, make_version

BUSY_TIMEOUT_SECONDS = 60
QUERY = """
SELECT name, version, creation_time, run_id, source, ifnull(tags, '{}'), ifnull(aliases, '[]')
FROM model_versions
LEFT JOIN (SELECT name, version, json_group_object(key, ifnull(value, '')) AS tags
           FROM model_version_tags WHERE :name IN ('', name) GROUP BY name, version) USING (name, version)
LEFT JOIN (SELECT name, version, json_group_array(alias) AS aliases
           FROM registered_model_aliases WHERE :name IN ('', name) GROUP BY name, version) USING (name, version)
WHERE current_stage != 'Deleted_Internal' AND :name IN ('', name)
"""


def read_versions(file: Path, name: str = "") -> list[Version] | None:
    """All versions, or those of one model, in any order; None where the caller must ask MLflow's client instead.

    That is so where the schema is not MLflow 3.17's, or the file stays locked. Raises BadConfiguration for a file that
    is no database.
    """
    address = f"{file.absolute().as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(address, uri=True, timeout=BUSY_TIMEOUT_SECONDS)) as connection:
            if not has_known_schema(connection):
                return None
            rows = connection.execute(QUERY, {"name": name}).fetchall()
    except sqlite3.OperationalError:
        return None
    except sqlite3.DatabaseError as error:
        raise _damaged(file, error) from error
    return [
        make_version(model, version, created, run_id, source, json.loads(tags), json.loads(aliases))
        for model, version, created, run_id, source, tags, aliases in rows
    ]


def check_database(uri: str) -> None:
    """Raise BadConfiguration if ``uri`` names a SQLite file that is damaged; other stores are not looked at."""
    file = sqlite_file(uri)
    if not file or not file.exists():
        return
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            has_known_schema(connection)
    except sqlite3.OperationalError:  # it is locked or cannot be opened, which is not damage
        return
    except sqlite3.DatabaseError as error:
        raise _damaged(file, error) from error


def _damaged(file: Path, error: sqlite3.DatabaseError) -> BadConfiguration:
    return BadConfiguration(f"{file} is not a database of MLflow ({error}): restore or remove it")


def model_address(file: Path, name: str, version: int) -> str:
    """Where the files of a version are, as MLflow's database says; "" where it does not say."""
    query = """
    SELECT ifnull(logged.artifact_location, registered.source) FROM model_versions AS registered
    LEFT JOIN logged_models AS logged ON registered.source = 'models:/' || logged.model_id
    WHERE registered.name = ? AND registered.version = ?
    """
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            found = connection.execute(query, (name, version)).fetchone()
    except sqlite3.Error:
        return ""
    return str(found[0]) if found and found[0] else ""
