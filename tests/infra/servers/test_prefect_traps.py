"""What Prefect does where it once failed, or still does: each new version has to pass these before it is taken."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from prefect._internal import observers
from websockets.exceptions import ConnectionClosedError
from websockets.frames import Close

FLOW_RUN = uuid.uuid4()


class Stream:
    """A stream of events without an event, which ends cleanly or with ``error``."""

    def __init__(self, error: Exception | None) -> None:
        self.error = error

    def __aiter__(self) -> "Stream":
        return self

    async def __anext__(self) -> None:
        raise self.error or StopAsyncIteration


async def cancelled(monkeypatch: pytest.MonkeyPatch, error: Exception | None) -> set[uuid.UUID]:
    """The flow runs that a worker cancels when one is cancelled in the UI after the stream of events ended."""

    async def read_flow_runs(flow_run_filter: Any) -> list[SimpleNamespace]:
        return [SimpleNamespace(id=FLOW_RUN)] if FLOW_RUN in flow_run_filter.id.any_ else []

    @asynccontextmanager
    async def client() -> AsyncIterator[SimpleNamespace]:
        yield SimpleNamespace(read_flow_runs=read_flow_runs)

    @asynccontextmanager
    async def subscriber(**_: object) -> AsyncIterator[Stream]:
        yield Stream(error)

    monkeypatch.setattr(observers, "get_client", client)
    monkeypatch.setattr(observers, "get_events_subscriber", subscriber)
    found: set[uuid.UUID] = set()
    async with observers.FlowRunCancellingObserver(found.add, polling_interval=0.01) as observer:
        observer.add_in_flight_flow_run_id(FLOW_RUN)
        for _ in range(100):
            await asyncio.sleep(0.01)
            if found:
                break
    return found


def test_a_worker_notices_a_cancellation_after_the_server_was_restarted(monkeypatch: pytest.MonkeyPatch) -> None:
    restarted = ConnectionClosedError(Close(1012, ""), None)
    assert asyncio.run(cancelled(monkeypatch, restarted)) == {FLOW_RUN}


@pytest.mark.xfail(strict=True, reason="mended after 3.8.8; docs/deployment.md names it until then")
def test_a_worker_notices_a_cancellation_after_a_proxy_closed_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asyncio.run(cancelled(monkeypatch, None)) == {FLOW_RUN}
