"""Whether the very run that a deployment is about to begin is going already, by anyone on the same Prefect server.

A limit of the deployment would do, were it not kept by a lease: Prefect ends a run whose lease it could not renew, as
when the server is restarted. Here a run counts as long as its heart beats, so that one that was killed blocks nobody.
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowFilter, FlowRunFilter
from prefect.client.schemas.objects import FlowRun
from prefect.events.filters import EventFilter
from prefect.runtime import flow_run as present
from prefect.utilities.urls import url_for

HEARTBEAT_TIMEOUT_SECONDS = 180.0
"""A run whose heart has not beaten for so long is gone; Prefect's beats every 30 s."""


def duplicate_run(flow: str, defaults: Mapping[str, Any]) -> str:
    """A sentence about an earlier run of ``flow`` with the same parameters; "" for none, and outside deployments.

    ``defaults`` stand for parameters that are not given. Two that begin at once see each other; the first goes on.
    """
    if not present.id:
        return ""
    with get_client(sync_client=True) as client:
        own = client.read_flow_run(UUID(present.id))
        if own.deployment_id is None:
            return ""
        running = FlowRunFilter.model_validate({"state": {"type": {"any_": ["RUNNING"]}}})
        named = FlowFilter.model_validate({"name": {"any_": [flow]}})
        for other in client.read_flow_runs(flow_filter=named, flow_run_filter=running):
            same = _parameters(other, defaults) == _parameters(own, defaults)
            if (
                same
                and other.id != own.id
                and _running_since(other) < _running_since(own)
                and has_heartbeat(client, other)
            ):
                return f"the same run is going already: {other.name} ({url_for(other) or other.id})"
    return ""


def _parameters(run: FlowRun, defaults: Mapping[str, Any]) -> str:
    return json.dumps({**defaults, **{name: value for name, value in run.parameters.items() if value}}, sort_keys=True)


def _running_since(run: FlowRun) -> tuple[datetime, UUID]:
    """When it began to run this time; a retry began later than its first try."""
    return (run.state.timestamp if run.state else datetime.now(UTC)), run.id


def has_heartbeat(client: SyncPrefectClient, run: FlowRun) -> bool:
    """Whether the flow run, in a state of somebody at work, was heard of lately."""
    lately = datetime.now(UTC) - timedelta(seconds=HEARTBEAT_TIMEOUT_SECONDS)
    if _running_since(run)[0] > lately:
        return True
    asked = {
        "occurred": {"since": lately},
        "event": {"name": ["prefect.flow-run.heartbeat"]},
        "resource": {"id": [f"prefect.flow-run.{run.id}"]},
    }
    return bool(client.read_events(EventFilter.model_validate(asked), limit=1).events)
