"""Several processes that use a new root at once create MLflow's database together."""

import subprocess
import sys
from pathlib import Path

import pytest

PROCESSES = 4
OPEN = """
import sys
from infra.tracking.client import mlflow_client
import mlflow.tracking
import mlflow.store.tracking.sqlalchemy_store
import mlflow.store.model_registry.sqlalchemy_store
print("ready", flush=True)
sys.stdin.readline()
client = mlflow_client(sys.argv[1])
experiment = client.create_experiment(sys.argv[2])
client.create_registered_model(sys.argv[2])
print(len(client.search_runs([experiment])))
"""


@pytest.mark.slow
def test_processes_that_open_a_new_database_at_once_all_succeed(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    started = [
        subprocess.Popen(
            [sys.executable, "-c", OPEN, uri, f"process-{number}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(PROCESSES)
    ]
    for process in started:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
    for process in started:
        assert process.stdin
        process.stdin.write("go\n")
        process.stdin.flush()
    ends = [process.communicate() for process in started]
    assert [(process.returncode, out) for process, (out, _) in zip(started, ends, strict=True)] == [
        (0, "0\n")
    ] * PROCESSES, ends
