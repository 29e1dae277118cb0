"""A run that is interrupted cancels the flow run of its stage; test_scheduling has real workers."""

from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import StateType
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Cancelling, Failed, Running

from flows.orchestration import remote_stage
from flows.runner.request import RunRequest
from infra.servers.temporary_prefect import temporary_server
from tasks.engine.run_settings import RemoteStage

call: Any = SimpleNamespace(key="k", item="", label="train", stage=SimpleNamespace(name="train"))


class Client:
    """A server with one flow run, of this run or of another one that lives."""

    def __init__(self, mine: bool) -> None:
        self.run = SimpleNamespace(id=uuid4(), name="r", state=Running(), tags=[f"for:{uuid4()}"], created=1)
        self.mine = mine
        self.states = list[str]()
        self.reads = 0

    def read_flow_runs(self, flow_run_filter: Any, **_: Any) -> list[Any]:
        living = StateType.RUNNING in flow_run_filter.state.type.any_
        return [self.run] if living and not self.mine else []

    def read_flow_run(self, _: Any) -> Any:
        self.reads += 1
        if self.reads == 3:
            raise KeyboardInterrupt
        return self.run

    def set_flow_run_state(self, _: Any, state: Any) -> None:
        self.states.append(state.name)


@pytest.mark.parametrize(("mine", "states"), [(True, ["Cancelling"]), (False, [])])
def test_the_stage_of_an_interrupted_run_is_cancelled(
    monkeypatch: pytest.MonkeyPatch, mine: bool, states: list[str]
) -> None:
    client = Client(mine)

    @contextmanager
    def connect(**_: Any) -> Any:
        yield client

    monkeypatch.setattr(remote_stage, "get_client", connect)
    monkeypatch.setattr(remote_stage, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(remote_stage, "run_deployment", lambda *_, **__: client.run)
    monkeypatch.setattr(remote_stage, "deploy_stage", lambda *_: None)
    monkeypatch.setattr(remote_stage, "url_for", lambda _: "")
    dispatch = remote_stage.DeploymentDispatch(RunRequest("demo"), "gpu", lambda _: None)
    with pytest.raises(KeyboardInterrupt):
        dispatch(RemoteStage(call, "", ""))
    assert client.states == states, "a flow run that another run waits for goes on"


def test_a_submission_never_gets_an_old_flow_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever flow runs of the key were deleted; while one lives, a further submission gets that one."""
    monkeypatch.setenv("PREFECT_HOME", f"{tmp_path}")
    dispatch = remote_stage.DeploymentDispatch(RunRequest("demo"), "gpu", lambda _: None)
    stage = RemoteStage(call, "", "")
    with (
        temporary_server(tmp_path) as api,
        temporary_settings({PREFECT_API_URL: api}),
        get_client(sync_client=True) as client,
    ):
        assert not client.read_deployments(), "the page shows no deployment that nobody uses"

        def submit(ends: Any = Failed) -> Any:
            run = dispatch._submit(client, stage)
            again = dispatch._submit(client, stage)
            assert again.id == run.id, "two runs that submit at once share a flow run"
            assert run.state.is_scheduled()
            client.set_flow_run_state(run.id, ends(), force=True)
            return run.id

        made = [submit(), submit(Cancelling)]
        for gone in (0, 1, 2):
            client.delete_flow_run(made[gone])
            made.append(submit())
        for gone in (3, 4):
            client.delete_flow_run(made[gone])
        made.append(submit())
        (deployment,) = client.read_deployments()
        assert (deployment.name, deployment.work_pool_name) == ("gpu", "gpu")
    assert len(set(made)) == len(made) == 6
