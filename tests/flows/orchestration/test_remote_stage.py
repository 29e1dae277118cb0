"""A run that gives up a stage of another worker cancels its flow run; test_scheduling has real workers."""

from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from prefect.states import Running

from flows.orchestration import remote_stage
from flows.runner.request import RunRequest
from infra.errors import Fault
from tasks.engine.remote import RemoteStage


class Client:
    """A server with one flow run, of this run or of another one that lives."""

    def __init__(self, mine: bool) -> None:
        self.run = SimpleNamespace(id=uuid4(), name="r", state=Running(), tags=[f"for:{uuid4()}"], created=1)
        self.mine, self.states = mine, list[str]()

    def read_flow_runs(self, **_: Any) -> list[Any]:
        return [] if self.mine else [self.run]

    def read_flow_run(self, _: Any) -> Any:
        return self.run

    def set_flow_run_state(self, _: Any, state: Any) -> None:
        self.states.append(state.name)


@pytest.mark.parametrize(("mine", "states"), [(True, ["Cancelling"]), (False, [])])
def test_a_stage_that_the_watch_gives_up_is_cancelled(
    monkeypatch: pytest.MonkeyPatch, mine: bool, states: list[str]
) -> None:
    client, looks = Client(mine), []

    @contextmanager
    def connect(**_: Any) -> Any:
        yield client

    def watch() -> None:
        looks.append(1)
        if len(looks) == 3:
            raise Fault("poor")

    monkeypatch.setattr(remote_stage, "get_client", connect)
    monkeypatch.setattr(remote_stage, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(remote_stage, "run_deployment", lambda *_, **__: client.run)
    monkeypatch.setattr(remote_stage, "create_link_artifact", lambda *_, **__: None)
    monkeypatch.setattr(remote_stage, "url_for", lambda _: "")
    call: Any = SimpleNamespace(key="k", item="", label="train", stage=SimpleNamespace(name="train"))
    dispatch = remote_stage.DeploymentDispatch(RunRequest("demo"), "gpu", lambda _: None)
    with pytest.raises(Fault, match="poor"):
        dispatch(RemoteStage(call, "", "", watch))
    assert client.states == states, "a flow run that another run waits for goes on"
