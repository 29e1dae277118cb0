"""Detects that a deployment's run is already running on the same Prefect server.

A concurrency limit of the deployment is no substitute: Prefect ends a run if it cannot renew the run's lease, for
example when the server restarts. Here a run counts while it sends heartbeats, so a killed run never blocks another.
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from inspect import signature
from typing import Any
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowFilter, FlowRunFilter
from prefect.client.schemas.objects import FlowRun
from prefect.events.filters import EventFilter
from prefect.flows import Flow
from prefect.runtime import flow_run as present
from prefect.utilities.urls import url_for

from infra.servers.prefect_states import HEARTBEAT_TIMEOUT_SECONDS


def duplicate_run(flow: Flow[..., Any]) -> str:
    """Return a message that names an earlier, still running run of ``flow`` with the same parameters, else "".

    Always "" outside deployments. Of two runs that start at the same time, the first continues.
    """
    defaults = {name: parameter.default for name, parameter in signature(flow.fn).parameters.items()}
    if not present.id:
        return ""
    with get_client(sync_client=True) as client:
        own = client.read_flow_run(UUID(present.id))
        if own.deployment_id is None:
            return ""
        running = FlowRunFilter.model_validate({"state": {"type": {"any_": ["RUNNING"]}}})
        named = FlowFilter.model_validate({"name": {"any_": [flow.name]}})
        for other in client.read_flow_runs(flow_filter=named, flow_run_filter=running):
            same = _parameters(other, defaults) == _parameters(own, defaults)
            if same and _running_since(other) < _running_since(own) and has_heartbeat(client, other):
                return f"the same run is already running: {other.name} ({url_for(other) or other.id})"
    return ""


def _parameters(run: FlowRun, defaults: Mapping[str, Any]) -> str:
    return json.dumps({**defaults, **{name: value for name, value in run.parameters.items() if value}}, sort_keys=True)


def _running_since(run: FlowRun) -> tuple[datetime, UUID]:
    """Return when the run entered its present state, so that a retry counts as later; the id breaks ties."""
    return (run.state.timestamp if run.state else datetime.now(UTC)), run.id


def has_heartbeat(client: SyncPrefectClient, run: FlowRun) -> bool:
    """Whether the running flow run changed its state or sent a heartbeat recently."""
    recent = datetime.now(UTC) - timedelta(seconds=HEARTBEAT_TIMEOUT_SECONDS)
    if _running_since(run)[0] > recent:
        return True
    query = {
        "occurred": {"since": recent},
        "event": {"name": ["prefect.flow-run.heartbeat"]},
        "resource": {"id": [f"prefect.flow-run.{run.id}"]},
    }
    return bool(client.read_events(EventFilter.model_validate(query), limit=1).events)
