"""Sets final states in Prefect's server for flow runs and task runs with a dead process or lost events.

Prefect's server learns about task runs from events. Events that were in transit when a process or the server was killed
never arrive, and the task run would stay "Running" forever. Prefect is imported late. A server that does not answer is
ignored, because the next call finds the same runs.
"""

import json
import os
import sqlite3
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from infra.processes.identity import process_identity, process_state
from infra.servers.sqlite_addresses import open_read_only, sqlite_file

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import State, TaskRun

PROCESS_LABEL = "repro.process"
"""The label of a flow run that names its process."""
EVENT_DELAY_SECONDS = 5.0
"""How long an event may take from this process to the server's database."""
CLOCK_SKEW_SECONDS = 60.0
"""How long an event may take if the clocks of processes differ."""
POLL_SECONDS = 0.1
REPEAT_SECONDS = 0.5
HEARTBEAT_TIMEOUT_SECONDS = 240
"""How long a flow run may be without heartbeats. It sends one every 60 s (``infra.servers.environment``), so three may
be lost."""
AUTOMATION = "repro: flow runs that fell silent"
UNFINISHED_STATES = ("RUNNING", "CANCELLING")
"""A PENDING flow run with a label is a Retry whose process starts now; the label is that of the ended process."""
UNFINISHED_TASK_STATES = (*UNFINISHED_STATES, "PENDING", "SCHEDULED")
"""A SCHEDULED task run waits for its next retry."""


def label_process(flow_run: UUID) -> None:
    """Label a flow run with this process's identity, so that a later call can check whether the process is alive."""
    with suppress(*_prefect_errors()), _client() as client:
        client.update_flow_run_labels(flow_run, {PROCESS_LABEL: process_identity()})


def has_abandoned_flow_runs() -> bool:
    """Whether the database of a temporary server has an unfinished flow run with a dead process.

    Reads Prefect's SQLite file in milliseconds; asking a server would take 5 CPU seconds before each run. False if
    the file cannot be read: it does not exist yet, is another kind of database, or has another schema.
    """
    address = os.environ.get("PREFECT_SERVER_DATABASE_CONNECTION_URL", "").replace("+aiosqlite", "", 1)
    file = sqlite_file(address) if address else Path(os.environ["PREFECT_HOME"], "prefect.db")
    states = ", ".join(f"'{state}'" for state in UNFINISHED_STATES)
    if not file:
        return False
    try:
        with closing(open_read_only(file)) as connection:
            rows = connection.execute(f"SELECT labels FROM flow_run WHERE state_type IN ({states})").fetchall()
        labels = [json.loads(text or "{}") for (text,) in rows]
    except (sqlite3.Error, ValueError):
        return False
    return any(process_state(f"{label.get(PROCESS_LABEL, '')}") == "gone" for label in labels if label)


def close_abandoned(flows: Sequence[str]) -> int:
    """Mark each unfinished run of ``flows`` with a dead process on this machine, and its task runs, as Crashed.

    A run that was being cancelled becomes Cancelled instead: a worker's hook calls this function between killing the
    process and reporting the cancellation. Also closes unfinished task runs of flow runs that crashed, were cancelled,
    or ended more than ``CLOCK_SKEW_SECONDS`` ago. Returns the number of marked flow runs; 0 if the server does not
    answer.
    """
    from prefect.client.schemas.objects import StateType
    from prefect.states import Cancelled, Crashed

    with suppress(*_prefect_errors()), _client() as client:
        running = client.read_flow_runs(**_filters(flows, {"state": _any_type(UNFINISHED_STATES)}))
        dead = [run for run in running if process_state(f"{run.labels.get(PROCESS_LABEL, '')}") == "gone"]
        for run in dead:
            is_cancelling = run.state_type is StateType.CANCELLING
            state: State[Any] = Cancelled() if is_cancelling else Crashed(message="its process is gone")
            client.set_flow_run_state(run.id, state, force=True)
        crashed = _unfinished_task_runs(client, flows, state=_any_type(("CRASHED", "CANCELLED")))
        affected = {run.id for run in dead} | {task.flow_run_id for task in crashed if task.flow_run_id}
        # An event in transit when the process was killed can still arrive and reopen a task run.
        end = time.monotonic() + (EVENT_DELAY_SECONDS if affected else 0)
        while time.monotonic() < end:
            unfinished = _unfinished_task_runs(client, flows, id={"any_": [f"{flow_run}" for flow_run in affected]})
            _close(client, unfinished, {}, "its process is gone")
            time.sleep(REPEAT_SECONDS)
        ended = {"before_": datetime.now(UTC) - timedelta(seconds=CLOCK_SKEW_SECONDS)}
        orphans = _unfinished_task_runs(client, flows, end_time=ended)
        _close(client, orphans, {}, "its flow run ended without it")
        return len(dead)
    return 0


def cancel_flow_runs(flows: Sequence[str], process: str) -> list[str]:
    """Make workers cancel the deployments' flow runs that ``process`` executes; return their names.

    Empty also if the server does not answer. A flow run without a deployment has no worker that could end it.
    """
    from prefect.states import Cancelling

    with suppress(*_prefect_errors()), _client() as client:
        running = client.read_flow_runs(**_filters(flows, {"state": _any_type(UNFINISHED_STATES)}))
        mine = [run for run in running if run.deployment_id and run.labels.get(PROCESS_LABEL) == process]
        for run in mine:
            client.set_flow_run_state(run.id, Cancelling(message="`repro stop`"))
        return [run.name for run in mine]
    return []


def close_task_runs(flow_run: UUID, completed: Collection[str], failed: Collection[str]) -> None:
    """Close the task runs of an ending flow run if an unreachable server missed their final events.

    Task runs named in ``completed`` and ``failed`` get these states, all others Crashed. First waits up to
    ``EVENT_DELAY_SECONDS`` for events in transit.
    """
    from prefect.states import Completed, Failed

    message = "set again, because the first event did not arrive"
    known: dict[str, State[Any]] = {name: Completed(message=message) for name in completed}
    known |= {name: Failed(message=message) for name in failed}
    with suppress(*_prefect_errors()), _client() as client:
        end = time.monotonic() + EVENT_DELAY_SECONDS
        this_run = {"any_": [f"{flow_run}"]}
        while (unfinished := _unfinished_task_runs(client, (), id=this_run)) and time.monotonic() < end:
            time.sleep(POLL_SECONDS)
        _close(client, unfinished, known, "its process is gone")


def ensure_heartbeat_automation() -> UUID:
    """Create or update the automation that marks a flow run Crashed when its heartbeats stop; return its id.

    Prefect recommends it for zombie flow runs. It also covers a machine that never restarts.
    """
    from prefect.client.schemas.objects import StateType
    from prefect.events.actions import ChangeFlowRunState
    from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture
    from prefect.events.schemas.events import ResourceSpecification

    beat = "prefect.flow-run.heartbeat"
    ends = ("Completed", "Failed", "Cancelled", "Crashed", "Paused", "Suspended")
    automation = AutomationCore(
        name=AUTOMATION,
        description="Marks a flow run Crashed when its heartbeats stop.",
        trigger=EventTrigger(
            after={beat},
            expect={beat, *(f"prefect.flow-run.{state}" for state in ends)},
            match=ResourceSpecification({"prefect.resource.id": ["prefect.flow-run.*"]}),
            for_each={"prefect.resource.id"},
            posture=Posture.Proactive,
            threshold=1,
            within=timedelta(seconds=HEARTBEAT_TIMEOUT_SECONDS),
        ),
        actions=[
            ChangeFlowRunState(name="Crashed", state=StateType.CRASHED, message="its heartbeats stopped", force=False)
        ],
    )
    with _client() as client:
        existing = client.read_automations_by_name(AUTOMATION)
        if not existing:
            return client.create_automation(automation)
        client.update_automation(existing[0].id, automation)
        return existing[0].id


def _prefect_errors() -> tuple[type[Exception], ...]:
    """Return the errors that Prefect's client raises if a server is missing, silent, or refuses a request."""
    import httpx
    from prefect.exceptions import PrefectException

    return (OSError, ValueError, RuntimeError, httpx.HTTPError, httpx.InvalidURL, PrefectException)


def _client() -> "SyncPrefectClient":
    from prefect.client.orchestration import get_client

    return get_client(sync_client=True)


def _unfinished_task_runs(
    client: "SyncPrefectClient", flows: Sequence[str], **flow_run_fields: Mapping[str, Any]
) -> "list[TaskRun]":
    """Return the unfinished task runs of the flow runs with these fields."""
    from prefect.client.schemas.filters import TaskRunFilter

    unfinished = TaskRunFilter.model_validate({"state": _any_type(UNFINISHED_TASK_STATES)})
    return client.read_task_runs(**_filters(flows, flow_run_fields), task_run_filter=unfinished)


def _filters(flows: Sequence[str], flow_run_fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return Prefect's filters for flow runs with these fields, of flows of these names; without ``flows``, of any."""
    from prefect.client.schemas.filters import FlowFilter, FlowRunFilter

    filters: dict[str, Any] = {"flow_run_filter": FlowRunFilter.model_validate(flow_run_fields)}
    if flows:
        filters["flow_filter"] = FlowFilter.model_validate({"name": {"any_": list(flows)}})
    return filters


def _any_type(states: Sequence[str]) -> dict[str, Any]:
    return {"type": {"any_": list(states)}}


def _close(
    client: "SyncPrefectClient", task_runs: "Sequence[TaskRun]", known: "Mapping[str, State[Any]]", message: str
) -> None:
    from prefect.states import Crashed

    for task_run in task_runs:
        client.set_task_run_state(task_run.id, known.get(task_run.name) or Crashed(message=message), force=True)
