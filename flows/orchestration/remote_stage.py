"""Dispatch a stage to a worker of another pool as a flow run, and wait for it.

When the call returns, the artifact is in the store; otherwise it raises the Fault that the worker ended with. If a flow
run already makes the same key, the call waits for that one. The caller decides about retries.
"""

import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from uuid import UUID

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowRunFilter
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.client.schemas.sorting import FlowRunSort
from prefect.deployments import run_deployment
from prefect.exceptions import ObjectNotFound
from prefect.runtime import flow_run as present
from prefect.states import Cancelling, Crashed
from prefect.utilities.urls import url_for

from flows.orchestration.deploy import deploy_stage
from flows.orchestration.duplicates import has_heartbeat
from flows.runner.request import RunRequest
from infra import errors
from infra.errors import Fault, JobFailed, NetworkFault
from infra.processes import signals
from infra.servers.prefect_states import HEARTBEAT_TIMEOUT_SECONDS
from tasks.engine.prefect_runner import PREFECT_ERRORS
from tasks.engine.run_settings import RemoteStage

POLL_SECONDS = 1.0
SERVER_TIMEOUT_SECONDS = 900.0
"""How long the server may be unreachable; the other worker continues without it."""
LATE_SECONDS = 60.0
"""After this time a message names a flow run that no worker has started."""
UNFINISHED = (StateType.SCHEDULED, StateType.PENDING, StateType.RUNNING)
ENDED = tuple(state for state in StateType if state not in UNFINISHED)
"""With flow runs that are being cancelled: nobody waits for those."""
FAULTS = {name: fault for name, fault in vars(errors).items() if isinstance(fault, type) and issubclass(fault, Fault)}


def current_work_pool() -> str:
    """The work pool of the worker that runs the current flow run; "" outside a worker."""
    if not present.id:
        return ""
    with get_client(sync_client=True) as client:
        return client.read_flow_run(UUID(present.id)).work_pool_name or ""


@dataclass(frozen=True)
class DeploymentDispatch:
    """Dispatches stages of ``request`` to the deployment ``stage/<pool>``."""

    request: RunRequest
    pool: str
    say: Callable[[str], None]

    def __call__(self, remote: RemoteStage) -> None:
        with get_client(sync_client=True) as client:
            while True:
                living = _newest(client, remote, UNFINISHED)
                mine = living is None
                run = living or self._submit(client, remote)
                action = "dispatched to" if mine else "already running in"
                link = url_for(run) or run.id
                self.say(f"{remote.call.label}: {action} pool {self.pool}, flow run {run.name} ({link})")
                try:
                    state = self._wait_until_final(client, run, remote)
                except BaseException as error:
                    if not isinstance(error, Exception):  # this run is stopped
                        _cancel(client, run, mine)
                    raise
                if mine or state.type != StateType.CANCELLED:
                    return raise_for_state(state, f"{remote.call.label} ({run.name})")
                # The run that started it was cancelled, but this run still needs the artifact.

    def _submit(self, client: SyncPrefectClient, remote: RemoteStage) -> FlowRun:
        call = remote.call
        request = self.request
        stage = {"run": request.run, "stage": call.stage.name, "key": call.key, "item": call.item}
        stage |= {"attempt": remote.attempt, "site": request.site, "parent": remote.parent}
        # Two runs that submit at the same moment find the same last one, so they get the same flow run. A count of flow
        # runs would give an old one again after another one was deleted.
        last = _newest(client, remote, ENDED)
        deploy_stage(client, self.pool, self.say)
        submitted: FlowRun = run_deployment(  # type: ignore[assignment]
            f"stage/{self.pool}",
            parameters={**stage, "overrides": list(request.overrides)},
            timeout=0,
            tags=[f"key:{call.key}", f"stage:{call.stage.name}", f"for:{present.id}"],
            idempotency_key=f"{call.key}-{last.id if last else 'first'}",
        )
        return submitted

    def _wait_until_final(self, client: SyncPrefectClient, run: FlowRun, remote: RemoteStage) -> State:
        label = remote.call.label
        started = time.monotonic()
        warned = False
        last_answer = last_error = last_check = started
        while True:
            signals.wait(POLL_SECONDS)
            try:
                run = client.read_flow_run(run.id)
                last_answer = now = time.monotonic()
                # After an outage the server lacks the heartbeats of that time.
                if now - last_error > HEARTBEAT_TIMEOUT_SECONDS and now - last_check > HEARTBEAT_TIMEOUT_SECONDS / 6:
                    last_check = now
                    if _is_started(run) and not has_heartbeat(client, run):
                        silent = f"its worker sent no heartbeat for {HEARTBEAT_TIMEOUT_SECONDS:.0f} s"
                        with suppress(httpx.HTTPError):  # nothing else marks the flow run of a lost worker
                            client.set_flow_run_state(run.id, Crashed(message=silent), force=True)
                        raise JobFailed(f"{label} ({run.name}): {silent}")
            except ObjectNotFound as error:
                raise Fault(f"{label}: its flow run {run.name} was deleted") from error
            except (httpx.HTTPError, OSError) as error:
                last_error = time.monotonic()
                if last_error - last_answer > SERVER_TIMEOUT_SECONDS:
                    raise NetworkFault(
                        f"Prefect's server did not answer for {SERVER_TIMEOUT_SECONDS:.0f} s: {error}"
                    ) from error
                continue
            if run.state and run.state.is_final():
                return run.state
            if now - started > LATE_SECONDS and not _is_started(run) and not warned:
                warned = True
                self.say(f"{label}: no worker of pool {self.pool} has started it yet")


def _cancel(client: SyncPrefectClient, run: FlowRun, mine: bool) -> None:
    """Cancel a flow run that nobody waits for any more: not that of another run that lives."""
    if mine or not _has_live_parent(client, run):
        with suppress(*PREFECT_ERRORS):  # the store keeps the work in any case
            client.set_flow_run_state(run.id, Cancelling(message="The run that waited for it ended."))


def _is_started(run: FlowRun) -> bool:
    """Whether a worker has started the flow run; then only that worker ends its state."""
    return run.state is not None and not run.state.is_final() and not run.state.is_scheduled()


def _newest(client: SyncPrefectClient, remote: RemoteStage, states: Collection[StateType]) -> FlowRun | None:
    """The newest flow run of this key in one of ``states``."""
    wanted = {"tags": {"all_": [f"key:{remote.call.key}"]}, "state": {"type": {"any_": [*states]}}}
    runs = client.read_flow_runs(
        flow_run_filter=FlowRunFilter.model_validate(wanted), sort=FlowRunSort.EXPECTED_START_TIME_DESC
    )
    return max(runs, key=lambda run: run.created or run.expected_start_time, default=None)  # type: ignore[arg-type, return-value]


def _has_live_parent(client: SyncPrefectClient, run: FlowRun) -> bool:
    """Whether the run that started it is still running."""
    parent = next((tag.removeprefix("for:") for tag in run.tags if tag.startswith("for:")), "")
    with suppress(ValueError, *PREFECT_ERRORS):  # an id that is none, or a run that was deleted
        state = client.read_flow_run(UUID(parent)).state
        return state is not None and not state.is_final()
    return False


def raise_for_state(state: State, label: str) -> None:
    """Raise the fault of the other worker. ``flows.orchestration.prefect_flows.stage`` names the state by its class."""
    message = state.message or f"its flow run ended as {state.name}"
    if state.is_completed():
        return
    if state.is_cancelled():
        raise Fault(f"{label} was cancelled")
    if state.is_crashed():
        raise JobFailed(f"{label}: {message}")
    raise FAULTS.get(state.name or "", Fault)(message)
