"""The two faults that the default suite tests with real servers: a killed run, and a killed MLflow."""

import shlex
from pathlib import Path

import pytest
from services import Services, assert_metrics_logged_once, has_checkpoint, stage_states, wait_for, wait_for_outcome
from small_pipeline import processes

pytestmark = [pytest.mark.timeout(900), pytest.mark.usefixtures("nothing_left")]
UNTIL = ("--until", "average")


def test_a_killed_run_is_resumed(services: Services, root: Path) -> None:
    first = services.run(root, "LONG", *UNTIL)
    wait_for(lambda: has_checkpoint(root))
    first.kill()
    first.wait()
    wait_for(lambda: not processes(root))
    (interrupted,) = services.unfinished(root)
    words = shlex.split(interrupted["command"])
    assert words[:3] == ["repro", "run", f"{services.runs}:LONG"]
    outcome = wait_for_outcome(services.repro(root, *words[1:], "--json"))
    assert stage_states(outcome)["shard"] == {"cached"}
    assert stage_states(outcome)["train"] == {"completed"}
    assert services.unfinished(root) == []
    assert_metrics_logged_once(services, root)


def test_mlflow_is_killed_during_training_and_restarted(services: Services, root: Path) -> None:
    run = services.run(root, "LONG", *UNTIL)
    wait_for(lambda: has_checkpoint(root))
    services.mlflow.kill()
    wait_for(lambda: has_checkpoint(root, 240) or run.poll() is not None)
    services.mlflow.start()
    said = wait_for_outcome(run)["said"]
    assert said.count("the run continues meanwhile") == 1
    assert "MLflow refused" not in said, said
    assert_metrics_logged_once(services, root)
