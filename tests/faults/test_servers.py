"""Servers that are killed, started again, or away: the run goes on, and they learn of all of it, each thing once."""

import time
import urllib.error
from pathlib import Path

import pytest
from world import PATIENCE, World, ask, checkpoint_there, finished, free_port, rows_arrived_once, states, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
UNTIL = ("--until", "average")
AWAY_SECONDS = 60


def all_completed(world: World) -> bool:
    """The newest flow run and its task runs are, each of them."""
    newest = world.flow_runs()[0]
    ended = {each["state_name"] for each in world.task_runs(newest["id"])}
    return newest["state_name"] == "Completed" and ended <= {"Completed", "Cached"}


@pytest.mark.usefixtures("nothing_left")
def test_mlflow_is_away_when_the_run_and_its_stages_begin(world: World, root: Path) -> None:
    world.mlflow.kill()
    run = world.run(root, "LONG", *UNTIL)
    wait_for(lambda: checkpoint_there(root))
    world.mlflow.start()
    finished(run)
    rows_arrived_once(world, root)


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("seconds", [0, AWAY_SECONDS])
def test_prefect_is_killed_in_mid_run_and_comes_back(world: World, root: Path, seconds: int) -> None:
    run = world.run(root, "LONG", *UNTIL)
    wait_for(lambda: checkpoint_there(root))
    world.prefect.kill()
    away_until = time.monotonic() + seconds
    wait_for(lambda: time.monotonic() > away_until)
    assert run.poll() is None
    world.prefect.start()
    outcome = finished(run)
    assert states(outcome)["train"] == {"completed"}
    assert "Traceback" not in outcome["said"]
    assert all_completed(world)


def test_prefect_was_never_there(world: World, root: Path) -> None:
    address = f"http://127.0.0.1:{free_port()}/api"
    run = world.run(root, "LONG", *UNTIL, PREFECT_API_URL=address)
    _, said = run.communicate(timeout=PATIENCE)
    assert run.returncode == 1
    assert [line for line in said.splitlines() if line.startswith("repro:")] == [
        f"repro: Prefect's server at {address} does not answer"
    ]
    assert "Traceback" not in said


def test_a_lease_outlives_the_server_that_gave_it(world: World) -> None:
    """Else a flow run of a deployment with a concurrency limit is cancelled once the server was started again."""
    limits = f"{world.api}/v2/concurrency_limits"
    ask(f"{limits}/", {"name": "one-training", "limit": 1})
    asked = {"names": ["one-training"], "slots": 1, "mode": "concurrency", "lease_duration": 300}
    lease = ask(f"{limits}/increment-with-lease", asked)["lease_id"]
    world.prefect.kill()
    world.prefect.start()
    ask(f"{limits}/leases/{lease}/renew", {"lease_duration": 300})
    with pytest.raises(urllib.error.HTTPError) as refused:
        ask(f"{limits}/increment-with-lease", asked)
    assert refused.value.code == 423, "it is still taken"
