"""A machine that never comes back: the automation at Prefect's server marks its flow runs Crashed."""

import subprocess
import sys

import pytest
from services import TIMEOUT_SECONDS, Services, request_json, wait_for

pytestmark = pytest.mark.slow
BEAT = """
from infra.servers import prefect_states
prefect_states.HEARTBEAT_TIMEOUT_SECONDS = 10
made = [prefect_states.ensure_heartbeat_automation() for _ in range(2)]
assert made[0] == made[1], "the automation is created once"
from prefect.events import emit_event
for flow_run in {flow_runs}:
    emit_event("prefect.flow-run.heartbeat", resource={{"prefect.resource.id": f"prefect.flow-run.{{flow_run}}"}})
"""


def test_a_flow_run_whose_heartbeats_stop_is_crashed(services: Services) -> None:
    flow = request_json(f"{services.api}/flows/", {"name": "reproduce"})["id"]
    running = {"flow_id": flow, "state": {"type": "RUNNING"}}
    silent, without_heartbeats = (request_json(f"{services.api}/flow_runs/", running)["id"] for _ in range(2))
    completed = {"flow_id": flow, "state": {"type": "COMPLETED"}}
    finished = request_json(f"{services.api}/flow_runs/", completed)["id"]  # its last heartbeat arrives late
    try:
        beat = [sys.executable, "-c", BEAT.format(flow_runs=[finished, silent])]
        subprocess.run(beat, env=services.environment(), check=True, timeout=TIMEOUT_SECONDS)
        crashed = wait_for(lambda: (run := services.flow_run(silent))["state_type"] == "CRASHED" and run)
        assert crashed["state"]["message"] == "its heartbeats stopped"
        assert services.flow_run(without_heartbeats)["state_type"] == "RUNNING"
        actions = {"filter": {"event": {"prefix": ["prefect.automation.action."]}}}
        ended = {"prefect.automation.action.executed", "prefect.automation.action.failed"}

        def ended_actions() -> int:
            found = request_json(f"{services.api}/events/filter", actions)["events"]
            return sum(each["event"] in ended for each in found)

        wait_for(lambda: ended_actions() >= 2)
        assert services.flow_run(finished)["state_type"] == "COMPLETED", "a late heartbeat changes nothing"
    finally:
        for automation in request_json(f"{services.api}/automations/filter", {}):
            request_json(f"{services.api}/automations/{automation['id']}", method="DELETE")
        for flow_run in (silent, without_heartbeats, finished):
            request_json(f"{services.api}/flow_runs/{flow_run}", method="DELETE")
