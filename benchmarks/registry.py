"""A registry with made-up versions, in the tables of MLflow's SQLite file that lists of versions are read from."""

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from infra.servers.mlflow_sqlite import SCHEMA_REVISION
from infra.tracking.model_version import Version

TABLES = """
CREATE TABLE alembic_version (version_num TEXT);
CREATE TABLE model_versions (name TEXT, version INTEGER, creation_time INTEGER, run_id TEXT, source TEXT,
                             current_stage TEXT, PRIMARY KEY (name, version));
CREATE TABLE model_version_tags (name TEXT, version INTEGER, key TEXT, value TEXT);
CREATE TABLE registered_model_aliases (name TEXT, version INTEGER, alias TEXT);
"""


def write_registry(file: Path, versions: Iterable[Version]) -> None:
    """Write a new SQLite file with these versions, their tags and aliases; MLflow itself cannot open it."""
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.executescript(TABLES)
        connection.execute("INSERT INTO alembic_version VALUES (?)", (SCHEMA_REVISION,))
        for each in versions:
            created = int(each.created.timestamp() * 1000)
            row = (each.name, each.version, created, each.run_id, each.source, "None")
            connection.execute("INSERT INTO model_versions VALUES (?, ?, ?, ?, ?, ?)", row)
            tags = [(each.name, each.version, key, value) for key, value in each.tags.items()]
            connection.executemany("INSERT INTO model_version_tags VALUES (?, ?, ?, ?)", tags)
            aliases = [(each.name, each.version, alias) for alias in each.aliases]
            connection.executemany("INSERT INTO registered_model_aliases VALUES (?, ?, ?)", aliases)
