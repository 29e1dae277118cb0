"""The two faults that every landing is tried with: a run that is killed, and MLflow that is."""

import shlex
from pathlib import Path

import pytest
from world import World, checkpoint_there, finished, processes, rows_arrived_once, states, wait_for

pytestmark = [pytest.mark.timeout(900), pytest.mark.usefixtures("nothing_left")]
UNTIL = ("--until", "average")


def test_a_run_is_killed_and_gone_on_with(world: World, root: Path) -> None:
    first = world.run(root, "LONG", *UNTIL)
    wait_for(lambda: checkpoint_there(root))
    first.kill()
    first.wait()
    wait_for(lambda: not processes(root), 60)
    (told,) = world.unfinished(root)
    words = shlex.split(told["command"])
    assert words[:3] == ["repro", "run", f"{world.runs}:LONG"]
    outcome = finished(world.repro(root, *words[1:], "--json"))
    assert states(outcome)["shard"] == {"cached"}
    assert states(outcome)["train"] == {"completed"}
    assert world.unfinished(root) == []
    rows_arrived_once(world, root)


def test_mlflow_is_killed_in_mid_training_and_comes_back(world: World, root: Path) -> None:
    run = world.run(root, "LONG", *UNTIL)
    wait_for(lambda: checkpoint_there(root))
    world.mlflow.kill()
    wait_for(lambda: checkpoint_there(root, 240) or run.poll() is not None)
    world.mlflow.start()
    said = finished(run)["said"]
    assert said.count("the run goes on without") == 1
    rows_arrived_once(world, root)
