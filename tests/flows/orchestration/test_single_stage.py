"""A worker runs one stage, and its error becomes the caller's; test_scheduling has real workers."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from prefect.states import Cancelled, Completed, Crashed, Failed
from toy_stages import Untracked

from flows.orchestration import single_stage
from flows.orchestration.remote_stage import FAULTS, raise_for_state
from flows.orchestration.single_stage import StageRequest, run_single_stage
from flows.runner.request import RunRequest, plan
from flows.views.terminal import TerminalDisplay
from infra.errors import BadConfiguration, Diverged, Fault, JobFailed, NetworkFault
from infra.store.local import LocalStore
from tasks.engine.planner import StageResult


@pytest.fixture
def decoding(small: Path, monkeypatch: pytest.MonkeyPatch) -> StageRequest:
    """A request for ``translate dev``, the only artifact that the run lacks."""
    monkeypatch.setattr(single_stage, "Tracker", Untracked)
    row = next(row for row in plan(RunRequest("small")).rows if (row.stage, row.item) == ("translate", "dev"))
    shutil.rmtree(small / "translate" / row.key)
    return StageRequest("small", "translate", row.key, "dev")


def made(request: StageRequest) -> StageResult:
    return run_single_stage(request, TerminalDisplay())


def states() -> dict[tuple[str, str], str]:
    return {(row.stage, row.item): row.state for row in plan(RunRequest("small")).rows}


def test_one_stage_runs_and_no_later_one(decoding: StageRequest, small: Path) -> None:
    shutil.rmtree(small / "score")
    assert made(decoding).state == "completed"
    assert states()["translate", "dev"] == "hit"
    assert states()["score", "dev"] == "miss"
    assert made(decoding).state == "cached"
    before = LocalStore(small).find("translate", decoding.key)
    forced = replace(decoding, attempt="first")
    assert [made(forced).state, made(forced).state] == ["completed", "cached"], "once in an attempt"
    assert LocalStore(small).find("translate", decoding.key) != before
    assert made(replace(decoding, attempt="second")).state == "completed"


def test_missing_inputs_are_refused(decoding: StageRequest, small: Path) -> None:
    shutil.rmtree(small / "average")
    with pytest.raises(BadConfiguration, match=r"average, which has no artifact here: not made yet .*same REPRO_ROOT"):
        made(decoding)
    assert not list((small / "average").glob("*"))


def test_another_key_is_refused(decoding: StageRequest) -> None:
    with pytest.raises(BadConfiguration, match=f"has key {decoding.key} here and 0123"):
        made(replace(decoding, key="0123"))


@pytest.mark.parametrize("kind", sorted(FAULTS))
def test_an_error_keeps_its_class(kind: str) -> None:
    with pytest.raises(Fault, match="^the reason$") as raised:
        raise_for_state(Failed(name=kind, message="the reason"), "train")
    assert type(raised.value).__name__ == kind


def test_only_a_crashed_stage_is_retried() -> None:
    raise_for_state(Completed(message="well"), "train")
    with pytest.raises(JobFailed) as lost:
        raise_for_state(Crashed(message="the worker is gone"), "train")
    assert lost.value.retry
    for state in (Cancelled(), Failed(message="KeyError: 'x'"), Failed(name="os", message="an unknown name")):
        with pytest.raises(Fault) as stopped:
            raise_for_state(state, "train")
        assert not stopped.value.retry
    assert FAULTS["NetworkFault"] is NetworkFault
    assert FAULTS["Diverged"] is Diverged
