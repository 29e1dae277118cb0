"""Servers that are killed, restarted or away: the run continues, and each server gets every fact exactly once."""

import sqlite3
import time
import urllib.error
from pathlib import Path

import pytest
from services import (
    TIMEOUT_SECONDS,
    Services,
    assert_metrics_logged_once,
    has_checkpoint,
    request_json,
    stage_states,
    wait_for,
    wait_for_outcome,
)
from small_pipeline import processes

from infra.servers.loopback import free_ports

pytestmark = pytest.mark.slow
UNTIL = ("--until", "average")
DOWN_SECONDS = 60


def all_completed(services: Services) -> bool:
    """Whether the newest flow run and all its task runs completed."""
    newest = services.flow_runs()[0]
    ended = {each["state_name"] for each in services.task_runs(newest["id"])}
    return newest["state_name"] == "Completed" and ended <= {"Completed", "Cached"}


@pytest.mark.usefixtures("nothing_left")
def test_mlflow_is_down_when_the_run_starts(services: Services, root: Path) -> None:
    services.mlflow.kill()
    run = services.run(root, "LONG", *UNTIL)
    wait_for(lambda: has_checkpoint(root))
    services.mlflow.start()
    wait_for_outcome(run)
    assert_metrics_logged_once(services, root)


@pytest.mark.usefixtures("nothing_left")
def test_prefect_is_killed_during_a_run_and_restarted(services: Services, root: Path) -> None:
    run = services.run(root, "LONG", *UNTIL)
    wait_for(lambda: has_checkpoint(root))
    services.prefect.kill()
    down_until = time.monotonic() + DOWN_SECONDS
    wait_for(lambda: time.monotonic() > down_until)
    assert run.poll() is None
    services.prefect.start()
    outcome = wait_for_outcome(run)
    assert stage_states(outcome)["train"] == {"completed"}
    assert "Traceback" not in outcome["said"]
    assert all_completed(services)


@pytest.mark.usefixtures("nothing_left")
def test_the_runs_own_prefect_server_is_killed_during_training(services: Services, root: Path) -> None:
    run = services.run(root, "LONG", *UNTIL, PREFECT_API_URL="", PREFECT_HOME=f"{root}/prefect")
    wait_for(lambda: has_checkpoint(root))
    (server,) = processes(root, "uvicorn")
    server.kill()
    outcome = wait_for_outcome(run)
    assert stage_states(outcome)["train"] == {"completed"}
    assert outcome["said"].count("it is started again") == 1
    assert "Traceback" not in outcome["said"]
    with sqlite3.connect(root / "prefect" / "prefect.db") as database:
        assert database.execute("SELECT state_type FROM flow_run").fetchall() == [("COMPLETED",)]
        assert {state for (state,) in database.execute("SELECT state_type FROM task_run")} == {"COMPLETED"}


def test_a_prefect_server_that_never_answers_is_one_error(services: Services, root: Path) -> None:
    address = f"http://127.0.0.1:{free_ports(1)[0]}/api"
    run = services.run(root, "LONG", *UNTIL, PREFECT_API_URL=address)
    _, said = run.communicate(timeout=TIMEOUT_SECONDS)
    assert run.returncode == 1
    assert [line for line in said.splitlines() if line.startswith("repro:")] == [
        f"repro: Prefect's server at {address} does not answer"
    ]
    assert "Traceback" not in said


def test_a_lease_outlives_the_server_that_gave_it(services: Services) -> None:
    """Else a flow run of a deployment with a concurrency limit is cancelled once the server was started again."""
    limits = f"{services.api}/v2/concurrency_limits"
    request_json(f"{limits}/", {"name": "one-training", "limit": 1})
    body = {"names": ["one-training"], "slots": 1, "mode": "concurrency", "lease_duration": 300}
    lease = request_json(f"{limits}/increment-with-lease", body)["lease_id"]
    services.prefect.kill()
    services.prefect.start()
    request_json(f"{limits}/leases/{lease}/renew", {"lease_duration": 300})
    with pytest.raises(urllib.error.HTTPError) as refused:
        request_json(f"{limits}/increment-with-lease", body)
    assert refused.value.code == 423, "it is still taken"
