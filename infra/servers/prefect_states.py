"""States at Prefect's server that somebody has to set because the process that would have done it is gone.

Prefect learns of task runs by events: those that were on their way when a process or the server itself was killed never
come, and what they would have ended stays "Running" for ever. Comes in: flow runs by id, and the processes their labels
name. Goes out: final states. Prefect is loaded late; nothing is raised for a server that does not answer.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from infra.processes.identity import process_identity, process_state

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import FlowRun, State, TaskRun

PROCESS_LABEL = "repro.process"
"""The label of a flow run that names its process."""
EVENT_DELAY_SECONDS = 5.0
"""How long an event may take from here into the server's database."""
CLOCK_SKEW_SECONDS = 60.0
"""The same between processes whose clocks differ."""
POLL_SECONDS = 0.1
SETTLING_SECONDS = 0.5
HEARTBEAT_TIMEOUT_SECONDS = 240
"""How long a flow run may be silent: at one sign in 60 s (``infra.servers.environment``), longer than its server may be
away."""
AUTOMATION = "repro: flow runs that fell silent"


def label_process(flow_run: UUID) -> None:
    """Write into a flow run which process it lives in."""
    with suppress(Exception), _client() as client:
        client.update_flow_run_labels(flow_run, {PROCESS_LABEL: process_identity()})


def close_abandoned(flows: Sequence[str]) -> int:
    """Mark Crashed each unfinished run of ``flows`` whose process on this machine is gone, and what is left below.

    Also task runs that are unfinished though their flow run ended a while ago. Returns how many flow runs there were.
    """
    try:
        with _client() as client:
            gone = [
                each
                for each in _unfinished_flow_runs(client, flows)
                if process_state(f"{each.labels.get(PROCESS_LABEL, '')}") == "gone"
            ]
            for run in gone:
                client.set_flow_run_state(run.id, _crashed("its process is gone"), force=True)
            # A worker that outlived its flow has said so already, perhaps to a server that forgot what was below.
            below = {run.id for run in gone} | {each.flow_run_id for each in _task_runs_of_crashed(client, flows)}
            # What was on its way when they were killed may still arrive, and open again what was closed.
            end = time.monotonic() + (EVENT_DELAY_SECONDS if below else 0)
            while time.monotonic() < end:
                _close(client, _task_runs(client, [each for each in below if each]), {}, "its process is gone")
                time.sleep(SETTLING_SECONDS)
            _close(client, _orphaned_task_runs(client, flows), {}, "its flow run ended without it")
            return len(gone)
    except Exception:
        return 0


def close_task_runs(flow_run: UUID, completed: frozenset[str], failed: frozenset[str]) -> None:
    """End what a flow run that is about to end, or has, left unfinished: task runs by name, the others as Crashed.

    What is under way gets a few seconds to arrive first.
    """
    from prefect.states import Completed, Failed

    known: dict[str, State[Any]] = {
        name: Completed(message="told again: the first word did not arrive") for name in completed
    }
    known |= {name: Failed(message="told again: the first word did not arrive") for name in failed}
    with suppress(Exception), _client() as client:
        end = time.monotonic() + EVENT_DELAY_SECONDS
        while (left := _task_runs(client, [flow_run])) and time.monotonic() < end:
            time.sleep(POLL_SECONDS)
        _close(client, left, known, "its process is gone")


def ensure_heartbeat_automation() -> UUID:
    """Have the server mark Crashed each flow run that stops to give signs of life, where no process is left to do it.

    That is Prefect's own way against zombies, for a machine that never comes back. May be called again and again.
    """
    from prefect.client.schemas.objects import StateType
    from prefect.events.actions import ChangeFlowRunState
    from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture
    from prefect.events.schemas.events import ResourceSpecification

    beat, ends = "prefect.flow-run.heartbeat", ("Completed", "Failed", "Cancelled", "Crashed", "Paused", "Suspended")
    asked = AutomationCore(
        name=AUTOMATION,
        description="A flow run that gave signs of life and stops to is Crashed.",
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
            ChangeFlowRunState(
                name="Crashed", state=StateType.CRASHED, message="gave no sign of life any more", force=False
            )
        ],
    )
    with _client() as client:
        there = client.read_automations_by_name(AUTOMATION)
        if not there:
            return client.create_automation(asked)
        client.update_automation(there[0].id, asked)
        return there[0].id


def _client() -> "SyncPrefectClient":
    from prefect.client.orchestration import get_client

    return get_client(sync_client=True)


def _unfinished_flow_runs(client: "SyncPrefectClient", flows: Sequence[str]) -> "list[FlowRun]":
    from prefect.client.schemas.filters import FlowFilter, FlowFilterName, FlowRunFilter
    from prefect.client.schemas.filters import FlowRunFilterState as OfState
    from prefect.client.schemas.filters import FlowRunFilterStateType as OfType

    return client.read_flow_runs(
        flow_filter=FlowFilter(name=FlowFilterName(any_=list(flows))),
        flow_run_filter=FlowRunFilter(state=OfState(type=OfType(any_=_open_states()))),
    )


def _task_runs(client: "SyncPrefectClient", flow_runs: list[UUID]) -> "list[TaskRun]":
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId

    chosen = FlowRunFilter(id=FlowRunFilterId(any_=flow_runs))
    return client.read_task_runs(flow_run_filter=chosen, task_run_filter=_open_task_runs())


def _orphaned_task_runs(client: "SyncPrefectClient", flows: Sequence[str]) -> "list[TaskRun]":
    from prefect.client.schemas.filters import FlowFilter, FlowFilterName, FlowRunFilter, FlowRunFilterEndTime

    before: Any = datetime.now(UTC) - timedelta(seconds=CLOCK_SKEW_SECONDS)
    ended = FlowRunFilterEndTime(before_=before)
    return client.read_task_runs(
        flow_filter=FlowFilter(name=FlowFilterName(any_=list(flows))),
        flow_run_filter=FlowRunFilter(end_time=ended),
        task_run_filter=_open_task_runs(),
    )


def _task_runs_of_crashed(client: "SyncPrefectClient", flows: Sequence[str]) -> "list[TaskRun]":
    from prefect.client.schemas.filters import FlowFilter, FlowFilterName, FlowRunFilter
    from prefect.client.schemas.filters import FlowRunFilterState as OfState
    from prefect.client.schemas.filters import FlowRunFilterStateType as OfType
    from prefect.client.schemas.objects import StateType

    return client.read_task_runs(
        flow_filter=FlowFilter(name=FlowFilterName(any_=list(flows))),
        flow_run_filter=FlowRunFilter(state=OfState(type=OfType(any_=[StateType.CRASHED]))),
        task_run_filter=_open_task_runs(),
    )


def _open_task_runs() -> Any:
    from prefect.client.schemas.filters import TaskRunFilter, TaskRunFilterState, TaskRunFilterStateType

    return TaskRunFilter(state=TaskRunFilterState(type=TaskRunFilterStateType(any_=_open_task_states())))


def _open_states() -> Any:
    from prefect.client.schemas.objects import StateType

    return [StateType.RUNNING, StateType.PENDING, StateType.CANCELLING]


def _open_task_states() -> Any:
    from prefect.client.schemas.objects import StateType

    return [*_open_states(), StateType.SCHEDULED]  # one that waits to be tried again


def _crashed(message: str) -> "State[Any]":
    from prefect.states import Crashed

    return Crashed(message=message)


def _close(
    client: "SyncPrefectClient", left: "Sequence[TaskRun]", known: "Mapping[str, State[Any]]", message: str
) -> None:
    for task_run in left:
        client.set_task_run_state(task_run.id, known.get(task_run.name) or _crashed(message), force=True)
