"""Databases with the real tables of MLflow and Prefect on a real PostgreSQL server: backed up, upgraded, put back.

`repro up` upgrades SQLite files alone; on PostgreSQL an administrator runs the libraries' own commands, as here.
"""

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from postgresql import Cluster

from flows.commands.backup import backup, restore
from infra.servers.environment import NO_TELEMETRY
from infra.servers.mlflow_schema import SCHEMA_REVISION
from infra.service.databases import VARIABLE, Databases

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
PASSWORD = "planted-SECRET-42"
OLDER_PREFECT, PREFECT = "c8d5f2a71b3e", "d4a7e1c93f52"
"""The last two migrations of the installed Prefect for PostgreSQL."""
REVISION = "SELECT version_num FROM alembic_version"


@pytest.fixture
def databases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Databases]:
    """The databases of a service with the tables of the versions before: an experiment and a flow named ``kept``."""
    cluster = Cluster(PASSWORD)
    try:
        found = Databases(cluster.address("postgres", PASSWORD, "paper"))
        monkeypatch.setenv(VARIABLE, found.address)
        (tmp_path / "repro").mkdir()
        monkeypatch.setenv("REPRO_ROOT", f"{tmp_path / 'repro'}")
        found.make()
        make_older_mlflow(found.for_mlflow)
        prefect(found, tmp_path, "-r", OLDER_PREFECT)
        change(found.for_prefect, "INSERT INTO flow (id, name) VALUES (%s, 'kept')", f"{uuid.uuid4()}")
        yield found
    finally:
        cluster.end()


def make_older_mlflow(address: str) -> None:
    import alembic.command
    import sqlalchemy
    from alembic.script import ScriptDirectory
    from mlflow.store.db.utils import _get_alembic_config
    from mlflow.store.tracking.dbmodels.initial_models import Base

    engine = sqlalchemy.create_engine(address)
    Base.metadata.create_all(engine)  # the tables that the first migration expects
    engine.dispose()
    config = _get_alembic_config(address)
    newest = ScriptDirectory.from_config(config).get_revision(SCHEMA_REVISION)
    assert newest
    alembic.command.upgrade(config, f"{newest.down_revision}")
    words = "INSERT INTO experiments (name, lifecycle_stage, artifact_location) VALUES (%s, 'active', %s)"
    change(address, words, "kept", "s3://bucket/kept")


def prefect(databases: Databases, home: Path, *words: str) -> None:
    """Prefect's own command for an upgrade."""
    environment = {**os.environ, **NO_TELEMETRY, "PREFECT_HOME": f"{home}"}
    environment["PREFECT_SERVER_DATABASE_CONNECTION_URL"] = databases.for_prefect
    command = [sys.executable, "-m", "prefect", "server", "database", "upgrade", "-y", *words]
    subprocess.run(command, check=True, env=environment)


def change(address: str, words: str, *values: str) -> list[Any]:
    """The rows of a statement in the database of a library's address."""
    import psycopg2

    scheme, _, rest = address.partition("://")
    with closing(psycopg2.connect(f"{scheme.partition('+')[0]}://{rest}")) as connection:
        connection.autocommit = True
        cursor = connection.cursor()
        cursor.execute(words, values)
        return [row[0] for row in cursor.fetchall()] if cursor.description else []


def test_an_upgrade_keeps_what_was_there_and_a_restore_goes_back(databases: Databases, tmp_path: Path) -> None:
    from mlflow import MlflowClient

    (older_mlflow,) = change(databases.for_mlflow, REVISION)
    backup(tmp_path / "older")
    subprocess.run([sys.executable, "-m", "mlflow", "db", "upgrade", databases.for_mlflow], check=True)
    prefect(databases, tmp_path)
    assert change(databases.for_mlflow, REVISION) == [SCHEMA_REVISION] != [older_mlflow]
    assert change(databases.for_prefect, REVISION) == [PREFECT]
    assert change(databases.for_prefect, "SELECT name FROM flow") == ["kept"]

    client = MlflowClient(databases.for_mlflow)
    kept = client.get_experiment_by_name("kept")
    assert kept
    run = client.create_run(kept.experiment_id)
    client.log_metric(run.info.run_id, "loss", 2.5)
    client.create_registered_model("ende")
    client.create_model_version("ende", f"{tmp_path}", run.info.run_id, tags={"dev_set": "val"})
    client.set_registered_model_alias("ende", "champion", "1")
    backup(tmp_path / "newer")
    client.delete_registered_model("ende")
    client.delete_run(run.info.run_id)

    restore(tmp_path / "older")
    assert change(databases.for_mlflow, REVISION) == [older_mlflow]
    assert change(databases.for_prefect, REVISION) == [OLDER_PREFECT]
    assert change(databases.for_prefect, "SELECT name FROM flow") == ["kept"]

    restore(tmp_path / "newer")
    assert change(databases.for_prefect, REVISION) == [PREFECT]
    assert client.get_run(run.info.run_id).data.metrics == {"loss": 2.5}
    version = client.get_model_version_by_alias("ende", "champion")
    assert (int(version.version), version.tags) == (1, {"dev_set": "val"})
    later = client.create_model_version("ende", f"{tmp_path}", run.info.run_id)
    assert int(later.version) == 2, "the restored tables can be written to"
