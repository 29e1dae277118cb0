"""A sweep of a root in a bucket: another machine goes on with it, also after a kill, and never two at once."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from s3_server import Server
from toy_stages import Untracked

from flows.runner.outcome import Outcome
from flows.runner.request import RunPlan
from flows.tuning.search_space import JOURNAL
from flows.tuning.study import SweepStudy, send
from flows.tuning.sweep import SweepRequest
from infra.errors import BadConfiguration, Fault
from infra.processes import signals
from infra.processes.identity import process_identity
from infra.site import Site, open_store
from infra.store.claims import MARKER
from infra.store.s3_client import Bucket
from infra.store.store import Store
from tasks.engine.planner import StageResult


class Grouped(Untracked):
    """Records the names of the groups in MLflow."""

    names: ClassVar[set[str]] = set()

    def __init__(self, *_: object, token: str = "") -> None:
        if token:
            self.names.add(token)

    def log_artifacts(self, *_: object) -> None: ...
    def describe(self, *_: object) -> None: ...


@pytest.fixture
def bucket(s3: Server, mirror: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    monkeypatch.setenv("REPRO_ROOT", f"s3://{s3.bucket}/prefix")
    monkeypatch.setenv("REPRO_CACHE", f"{tmp_path / 'first'}")
    monkeypatch.setattr("flows.runner.group.Tracker", Grouped)
    monkeypatch.setattr(Grouped, "names", set())
    return Bucket(f"s3://{s3.bucket}/prefix")


def test_another_machine_goes_on_after_a_kill(bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "_received", [])
    tried: list[float] = []

    def run(trial: RunPlan) -> Outcome:
        tried.append(trial.resolved.run.training.factor)
        if len(tried) == 2:
            raise KeyboardInterrupt
        facts = {"dev_perplexity": 1e3 * trial.resolved.run.training.factor}
        return Outcome("small", [StageResult("train", "", "k", "completed", facts=facts)])

    asked = SweepRequest("small", ("training.factor=1e-4..1e-2:log",), 3, "dev.perplexity")
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        asked.resolve().run(run, lambda _: None)
    signals._received.clear()
    folder = f"sweeps/{asked.resolve().name}"
    assert set(bucket.list(folder)) == {JOURNAL}, "no marker is left"
    # A killed machine leaves its marker.
    left = {"holder": "process 7 on another host", "process": "", "mark": "m"}
    bucket.put(f"{folder}/{MARKER}", json.dumps(left).encode())

    monkeypatch.setenv("REPRO_CACHE", f"{tmp_path / 'second'}")
    said: list[str] = []
    with pytest.raises(BadConfiguration, match=r"process 7 on another host: .* --take-over"):
        asked.resolve().run(run, said.append)
    assert len(tried) == 2
    found = replace(asked, take_over=True).resolve().run(run, said.append)
    assert any("taken over from process 7 on another host" in each for each in said)
    assert len(tried) == 4, "one trial was done, one is repeated, one is new"
    assert tried[2] == tried[1]
    assert [row.state for row in found.rows] == ["complete"] * 3
    assert Grouped.names == {f"sweep {asked.resolve().name}"}, "one run in an MLflow that both share"

    monkeypatch.setenv("REPRO_CACHE", f"{tmp_path / 'first'}")
    assert asked.resolve().run(run, said.append).rows == found.rows, "the older journal here is replaced"
    assert len(tried) == 4


def machine(tmp_path: Path, name: str, said: list[str] | None = None) -> tuple[Store, Path]:
    """The store of a machine that shares the bucket, and its folder of the sweep."""
    site = replace(Site.named(), root=tmp_path / name)
    store = open_store(site)
    store.say = (said if said is not None else []).append
    folder = site.root / "sweeps" / "small-1"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / JOURNAL).write_text("")
    return store, folder


def test_a_sweep_runs_on_one_machine_at_a_time(bucket: Bucket, tmp_path: Path) -> None:
    first, folder = machine(tmp_path, "a")
    second, elsewhere = machine(tmp_path, "b")
    with first.claimed(folder, take_over=False) as check:
        send(first, folder, check, [].append)
        with pytest.raises(BadConfiguration, match="--take-over"), second.claimed(elsewhere, take_over=False):
            pass
        with second.claimed(elsewhere, take_over=True) as check_second:
            send(second, elsewhere, check_second, [].append)
            with pytest.raises(Fault, match="small-1"):
                send(first, folder, check, [].append)
    assert set(bucket.list("sweeps/small-1")) == {JOURNAL}, "each removes its own marker alone"


def test_the_marker_of_a_killed_process_of_this_machine_blocks_nobody(bucket: Bucket, tmp_path: Path) -> None:
    dead = process_identity().rpartition("/")[0] + "/1"  # this process id, of an earlier process
    left = {"holder": "process 7 on this host", "process": dead, "mark": "m"}
    bucket.put(f"sweeps/small-1/{MARKER}", json.dumps(left).encode())
    said: list[str] = []
    store, folder = machine(tmp_path, "a", said)
    with store.claimed(folder, take_over=False):
        assert said == ["sweeps/small-1: taken over from process 7 on this host"]


@pytest.mark.parametrize("text", [b"", b"[]", b'{"mark": 1}', b"\xff"])
def test_an_unreadable_marker_blocks_until_it_is_taken_over(bucket: Bucket, tmp_path: Path, text: bytes) -> None:
    bucket.put(f"sweeps/small-1/{MARKER}", text)
    store, folder = machine(tmp_path, "a")
    with pytest.raises(BadConfiguration, match="--take-over"), store.claimed(folder, take_over=False):
        pass
    with store.claimed(folder, take_over=True):
        assert json.loads(bucket.read(f"sweeps/small-1/{MARKER}"))["process"] == process_identity()


def test_a_line_that_a_kill_cut_off_is_dropped(tmp_path: Path) -> None:
    def study() -> SweepStudy:
        return SweepStudy(tmp_path, "minimize", ())

    first = study()
    trial, _ = first.ask()
    first.tell(trial, 1.0)
    with (tmp_path / JOURNAL).open("ab") as file:
        file.write(b'{"op_code": 4, "wor')
    again: Any = study()
    trial, _ = again.ask()
    again.tell(trial, 2.0)
    assert [row.value for row in study().rows()] == [1.0, 2.0]
