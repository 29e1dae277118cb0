"""The decision whether a stage runs, on toy stages: hits, misses, faults, races, forced runs."""

import contextlib
import errno
import os
import shutil
import socket
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings
from toy_stages import CALLS, ORDER, Number, built, make, plan, run, running, scope_of, settings, states, twice

from infra.errors import BadData, DiskFault, Fault, NoSpace, fault_of_disk
from infra.launch.job import JobSpec
from infra.site import Site
from infra.store.local import LocalStore
from infra.store.manifest import Manifest
from tasks.engine import jobs, prefect_runner
from tasks.engine.lookup import Hit
from tasks.engine.planner import Planner, Scope
from tasks.engine.prefect_runner import PrefectRunner
from tasks.engine.runner import Runner
from tasks.engine.stage import Facts, JobRequest, StageCall, current_stage, engine, stage
from tasks.engine.stage_code import UNCHANGED, StageCode


@pytest.fixture(autouse=True)
def _forget_calls() -> None:
    CALLS.clear()


def test_runs_once_then_is_cached(tmp_path: Path) -> None:
    assert plan(tmp_path) == ["miss"] * 3
    assert states(run(tmp_path)) == ["completed"] * 3
    assert plan(tmp_path) == ["cached"] * 3
    CALLS.clear()
    rows = run(tmp_path)
    assert states(rows) == ["cached"] * 3
    assert CALLS == []
    assert (Path(rows[-1].path) / "n").read_text() == "9"
    assert rows[0].facts == {"value": 3}


class CountingStore(LocalStore):
    """Records the stage of every manifest that is read."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.requested: list[str] = []

    def find(self, stage: str, key: str) -> Manifest | None:
        self.requested.append(stage)
        return super().find(stage, key)


def run_planned(root: Path, meanwhile: Callable[[], object] = lambda: None, **scope: Any) -> tuple[Runner, list[str]]:
    """Plan, then run with the plan's lookups; return the runner and the stages read after the plan."""
    store = CountingStore(root)
    within = scope_of(**scope)
    planner = built(Planner(store, Site(root=root), within))
    assert store.requested == list(ORDER)
    meanwhile()
    store.requested.clear()
    present = built(Runner(settings(root, within, store=store, plan=planner.lookups)))
    return present, list(dict.fromkeys(store.requested))


def test_a_planned_run_reads_only_the_manifests_of_its_misses_and_their_inputs(tmp_path: Path) -> None:
    present, requested = run_planned(tmp_path)
    assert (states(present.rows), requested) == (["completed"] * 3, list(ORDER))
    present, requested = run_planned(tmp_path)
    assert (states(present.rows), requested) == (["cached"] * 3, [])
    Path(present.rows[-1].path).rename(tmp_path / "away")
    present, requested = run_planned(tmp_path)
    assert (states(present.rows), requested) == (["cached", "cached", "completed"], ["total", "make", "twice"])


def test_a_waiting_stage_is_looked_up_after_its_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path)
    present, requested = run_planned(tmp_path, forced=frozenset({"make"}))
    assert (states(present.rows), requested) == (["completed", "cached", "cached"], list(ORDER))

    def changed(out: Path, number: Number) -> Facts:
        (out / "n").write_text("100")
        return {"value": number.value}

    monkeypatch.setattr(make, "body", changed)
    present, requested = run_planned(tmp_path, forced=frozenset({"make"}))
    assert (states(present.rows), requested) == (["completed"] * 3, list(ORDER))


def test_what_another_run_made_since_the_plan_is_not_made_again(tmp_path: Path) -> None:
    present, _ = run_planned(tmp_path, meanwhile=lambda: run(tmp_path))
    assert states(present.rows) == ["cached"] * 3
    assert CALLS == ["make", "twice", "total"]


@pytest.mark.parametrize("lost", ["make", "twice", "total"])
@pytest.mark.parametrize("how", ["deleted", "altered"])
def test_exactly_the_damaged_stage_runs_again(tmp_path: Path, lost: str, how: str) -> None:
    rows = {row.stage: row for row in run(tmp_path)}
    folder = Path(rows[lost].path)
    if how == "deleted":
        folder.rename(tmp_path / "away")
    else:
        (folder / "n").write_text("7")
    CALLS.clear()
    again = run(tmp_path)
    assert CALLS == [lost]
    assert states(again) == ["completed" if row.stage == lost else "cached" for row in again]
    assert bool(list(folder.parent.glob("*.bad-*"))) == (how == "altered")


def test_force_runs_one_stage_and_keeps_equal_dependents(tmp_path: Path) -> None:
    run(tmp_path)
    assert plan(tmp_path, forced=frozenset({"make"})) == ["miss", "waits", "waits"]
    assert states(run(tmp_path, forced=frozenset({"make"}))) == ["completed", "cached", "cached"]
    assert states(run(tmp_path, forced=frozenset(ORDER))) == ["completed"] * 3


def test_a_forced_stage_runs_again_in_a_resumed_attempt_if_its_code_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    again: dict[str, Any] = {"forced": frozenset({"twice"}), "attempt": "first"}
    assert states(run(tmp_path, **again)) == ["completed"] * 3
    assert states(run(tmp_path, **again)) == ["cached"] * 3
    changed = replace(UNCHANGED, modules=("toy_stages",))
    monkeypatch.setattr(StageCode, "change_since", lambda *_: changed)
    assert states(run(tmp_path, **again)) == ["cached", "completed", "cached"]


@pytest.mark.parametrize(
    ("number", "fault", "sentence"),
    [
        (errno.ENOSPC, NoSpace, "no space left under .*REPRO_ROOT"),
        (errno.EDQUOT, NoSpace, "no space left under .*REPRO_ROOT"),
        (errno.EFBIG, NoSpace, r"no space left under .* \(File too large\): "),
        (errno.ESTALE, DiskFault, "^a/b cannot be read or written for now: Stale file handle"),
        (errno.EIO, DiskFault, "^a/b cannot be read or written for now: Input/output error"),
    ],
)
def test_a_full_or_absent_disk_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, fault: type[Fault], sentence: str
) -> None:
    def fails(out: Path, number: Number) -> Facts:
        raise OSError(number_of_error, os.strerror(number_of_error), "a/b")

    number_of_error = number
    monkeypatch.setattr(make, "body", fails)
    with pytest.raises(fault, match=sentence):
        run(tmp_path)


def test_a_disk_that_is_full_in_the_copy_of_a_folder_is_one_sentence(tmp_path: Path) -> None:
    full = shutil.Error([("a/x", "b/x", f"{OSError(errno.ENOSPC, 'No space left on device', 'b/x')}")])
    assert isinstance(fault_of_disk(full, tmp_path), NoSpace)
    assert fault_of_disk(shutil.Error("two files are one"), tmp_path) is None


def test_a_stage_whose_outside_work_is_gone_runs_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path)
    monkeypatch.setattr(twice, "still_valid", lambda artifact, site: False)
    assert plan(tmp_path) == ["cached", "miss", "waits"]
    assert states(run(tmp_path)) == ["cached", "completed", "cached"]


def test_mapped_calls_run_at_once_and_keep_their_order(tmp_path: Path) -> None:
    together = threading.Barrier(3)

    def begin(out: Path, number: Number) -> Facts:
        """Ends only when three are under way."""
        together.wait(20)
        if number.value == 1:
            raise BadData("no such number")
        (out / "n").write_text(str(number.value))
        return {}

    begin.__name__ = "make"
    begins = stage(version=7)(begin)
    present = running(tmp_path)
    items = {str(n): Number(n) for n in (0, 3, 2, 1, 5, 4)}
    with engine(present), pytest.raises(BadData, match="no such number"):
        begins.map(items, 3)
    assert [row.item for row in present.rows] == list(items)
    assert [row.state for row in present.rows if row.item != "1"] == ["completed"] * 5
    assert not list(tmp_path.glob("*/*.partial*"))


class Recorder:
    """A launcher that records when each job ran and on which GPUs."""

    def __init__(self) -> None:
        self.intervals: list[tuple[float, float, tuple[str, ...]]] = []

    def run(self, job: JobSpec, on_poll: Callable[[], None]) -> None:
        begun = time.monotonic()
        time.sleep(0.3)
        self.intervals.append((begun, time.monotonic(), job.gpus))


@stage(version=1, needs="gpu")
def learn(out: Path, number: Number) -> Facts:
    current_stage().run_job(JobRequest("model.train", {}, {}, out))
    return {}


def test_two_trainings_take_turns_on_one_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, recorder = f"{uuid.uuid4()}", Recorder()
    monkeypatch.setitem(jobs.LAUNCHERS, "local", lambda: recorder)

    def train(value: int) -> None:
        site = Site(root=tmp_path, gpus=(gpu,))
        present = Runner(settings(tmp_path, Scope(("learn",)), site=site))
        with engine(present):
            learn(Number(value))

    both = [threading.Thread(target=train, args=(value,)) for value in (1, 2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join(60)
    (_, end, own), (begin, _, others) = sorted(recorder.intervals)
    assert end <= begin
    assert own == others == (gpu,)


def test_failed_tries_are_kept_with_the_result(tmp_path: Path) -> None:
    class ThreeTimes(Runner):
        def make(self, call: StageCall, failures: list[str]) -> Hit:
            for _ in range(2):
                with contextlib.suppress(BadData):
                    return super().make(call, failures)
            return super().make(call, failures)

    tries = iter(range(3))

    def body(out: Path, number: Number) -> Facts:
        if next(tries) < 2:
            raise BadData("not yet")
        (out / "n").write_text("3")
        current_stage().failures.append("a rank was killed")  # what a body tries again by itself
        return {}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(make, "body", body)
        present = ThreeTimes(settings(tmp_path))
        with engine(present):
            make(Number())
    (row,) = present.rows
    assert (row.state, row.failures) == ("completed", ("not yet", "not yet", "a rank was killed"))


def test_a_program_that_is_no_server_of_prefect_does_not_answer() -> None:
    def greet() -> None:
        with listener.accept()[0] as connection:
            connection.recv(1 << 16)
            connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=greet, daemon=True).start()
        address = f"http://127.0.0.1:{listener.getsockname()[1]}/api"
        with temporary_settings({PREFECT_API_URL: address}):
            assert not prefect_runner._server_answers()


def test_braces_in_a_label_are_no_fields_to_prefect(tmp_path: Path) -> None:
    call = StageCall(make, "a{1}.txt", {"number": Number()})
    name = PrefectRunner(settings(tmp_path))._task(call, []).task_run_name
    assert callable(name)
    assert name() == "make a{1}.txt"
