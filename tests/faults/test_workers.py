"""What a person does in Prefect's UI: start, cancel, retry. Only what failed, and what depends on it, runs again."""

import time
from pathlib import Path
from typing import Any

import pytest
from world import World, checkpoint_there, finished, processes, states, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.usefixtures("nothing_left", "worker")]
UNTIL = ("--until", "average")
CANCEL_SECONDS = 10


def ended(world: World, flow_run: str) -> dict[str, Any]:
    final = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")

    def found() -> dict[str, Any]:
        told = world.flow_run(flow_run)
        return told if told["state_type"] in final else {}

    return dict(wait_for(found))


def by_name(world: World, flow_run: str) -> dict[str, str]:
    return {each["name"]: each["state_name"] for each in world.task_runs(flow_run)}


def test_retry_runs_only_what_failed_and_what_comes_after(world: World, root: Path) -> None:
    (root / "average").write_text("in the way")
    flow_run = world.submit(world.deployment(), root, run=f"{world.runs}:LONG", until="average")
    assert ended(world, flow_run)["state_type"] == "FAILED"
    before = by_name(world, flow_run)
    assert (before["train"], before["average"]) == ("Completed", "Failed")
    trained = next(root.glob("train/*/manifest.json")).stat().st_mtime_ns
    (root / "average").unlink()
    world.cli("flow-run", "retry", flow_run)
    wait_for(lambda: world.flow_run(flow_run)["run_count"] == 2)
    told = ended(world, flow_run)
    assert (told["state_type"], told["run_count"]) == ("COMPLETED", 2)
    after = by_name(world, flow_run)
    assert after.pop("average") == "Completed"
    assert set(after.values()) <= {"Cached", "Completed"}
    assert next(root.glob("train/*/manifest.json")).stat().st_mtime_ns == trained

    again = world.submit(world.deployment(), root, run=f"{world.runs}:LONG", until="average", from_stage="average")
    assert ended(world, again)["state_type"] == "COMPLETED"
    made = by_name(world, again)
    assert (made["train"], made["average"]) == ("Cached", "Completed")


def test_a_new_run_runs_only_what_failed_and_what_comes_after(world: World, root: Path) -> None:
    (root / "average").write_text("in the way")
    flow_run = world.submit(world.deployment(), root, run=f"{world.runs}:LONG", until="average")
    assert ended(world, flow_run)["state_type"] == "FAILED"
    (root / "average").unlink()
    outcome = states(finished(world.run(root, "LONG", *UNTIL)))
    assert outcome.pop("average") == {"completed"}
    assert set.union(*outcome.values()) == {"cached"}
    outcome = states(finished(world.run(root, "LONG", *UNTIL, "--from", "average")))
    assert (outcome["train"], outcome["average"]) == ({"cached"}, {"completed"})


def test_cancel_ends_all_processes_and_keeps_the_checkpoint(world: World, root: Path) -> None:
    flow_run = world.submit(world.deployment(), root, run=f"{world.runs}:LONG", until="average")
    wait_for(lambda: checkpoint_there(root))
    assert processes(root, "model.train")
    world.cli("flow-run", "cancel", flow_run)
    begun = time.monotonic()
    wait_for(lambda: not processes(root, "model.train"))
    took = time.monotonic() - begun
    assert ended(world, flow_run)["state_name"] == "Cancelled"
    assert checkpoint_there(root)
    wait_for(lambda: not world.running(), 60)
    assert took < CANCEL_SECONDS
    outcome = states(finished(world.run(root, "LONG", *UNTIL)))
    assert outcome["train"] == {"completed"}
