"""Start, cancel and retry a run from Prefect's UI. A retry runs only what failed and what depends on it."""

from pathlib import Path
from typing import Any

import pytest
from services import FINAL_STATES, Services, has_checkpoint, stage_states, wait_for, wait_for_outcome
from small_pipeline import processes

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("nothing_left", "worker")]
UNTIL = ("--until", "average")


def ended(services: Services, flow_run: str) -> dict[str, Any]:
    return dict(wait_for(lambda: (found := services.flow_run(flow_run))["state_type"] in FINAL_STATES and found))


def by_name(services: Services, flow_run: str) -> dict[str, str]:
    return {each["name"]: each["state_name"] for each in services.task_runs(flow_run)}


def test_retry_runs_only_what_failed_and_what_comes_after(services: Services, root: Path) -> None:
    (root / "average").write_text("in the way")
    flow_run = services.submit(services.deployment(), root, run=f"{services.runs}:LONG", until="average")
    assert ended(services, flow_run)["state_type"] == "FAILED"
    before = by_name(services, flow_run)
    assert (before["train"], before["average"]) == ("Completed", "Failed")
    trained = next(root.glob("train/*/manifest.json")).stat().st_mtime_ns
    (root / "average").unlink()
    services.cli("flow-run", "retry", flow_run)
    wait_for(lambda: services.flow_run(flow_run)["run_count"] == 2)
    retried = ended(services, flow_run)
    assert (retried["state_type"], retried["run_count"]) == ("COMPLETED", 2)
    after = by_name(services, flow_run)
    assert after.pop("average") == "Completed"
    assert set(after.values()) <= {"Cached", "Completed"}
    assert next(root.glob("train/*/manifest.json")).stat().st_mtime_ns == trained

    again = services.submit(
        services.deployment(), root, run=f"{services.runs}:LONG", until="average", from_stage="average"
    )
    assert ended(services, again)["state_type"] == "COMPLETED"
    made = by_name(services, again)
    assert (made["train"], made["average"]) == ("Cached", "Completed")


def test_cancel_ends_all_processes_and_keeps_the_checkpoint(services: Services, root: Path) -> None:
    flow_run = services.submit(services.deployment(), root, run=f"{services.runs}:LONG", until="average")
    wait_for(lambda: has_checkpoint(root))
    assert processes(root, "model.train")
    services.cli("flow-run", "cancel", flow_run)
    wait_for(lambda: not processes(root, "model.train"))
    assert ended(services, flow_run)["state_name"] == "Cancelled"
    assert has_checkpoint(root)
    wait_for(lambda: not services.running())
    outcome = stage_states(wait_for_outcome(services.run(root, "LONG", *UNTIL)))
    assert outcome["train"] == {"completed"}
