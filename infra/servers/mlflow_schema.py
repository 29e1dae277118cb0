"""The revision of MLflow's database schema that this project's own SQL is written for.

Two modules use such SQL: ``infra.tracking.registry_sqlite`` reads versions, ``infra.servers.relocation`` rewrites
addresses. Both check the revision first.
"""

import sqlite3

SCHEMA_REVISION = "dc11669786a5"
"""The last migration of MLflow 3.17."""


def has_known_schema(connection: sqlite3.Connection) -> bool:
    """Whether the tables are those of MLflow 3.17; False where there are none. Raises sqlite3.DatabaseError."""
    try:
        return connection.execute("SELECT version_num FROM alembic_version").fetchall() == [(SCHEMA_REVISION,)]
    except sqlite3.OperationalError:
        return False
