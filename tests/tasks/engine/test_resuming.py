"""What an interrupted stage resumes: an unforced run, a retry, and each forced attempt."""

import inspect
from collections.abc import Callable
from pathlib import Path

import pytest
from toy_stages import ORDER, Number, Untracked, built, content, plan, run, running, settings, states, total

from infra.errors import NetworkFault
from infra.store.local import LocalStore
from infra.store.store import Artifact
from tasks.engine.lookup import Hit
from tasks.engine.planner import Attempt, Scope
from tasks.engine.runner import Runner
from tasks.engine.stage import Facts, StageCall, engine, stage


def fails_once(error: BaseException) -> Callable[..., Facts]:
    """A body of ``total`` whose first try in a folder fails."""

    def body(out: Path, numbers: tuple[Artifact, ...]) -> Facts:
        tries = len(list(out.glob("try-*")))
        (out / f"try-{tries}").write_text("x")
        if tries == 0:
            raise error
        (out / "n").write_text("9")
        return {"tries": tries + 1}

    body.__signature__ = inspect.signature(total.body)  # type: ignore[attr-defined]
    return body


def test_an_interrupted_resumable_stage_finds_its_folder_again(tmp_path: Path) -> None:
    rows = run(tmp_path, until="") and run(tmp_path)
    key = rows[-1].key
    Path(rows[-1].path).rename(tmp_path / "away")
    inputs = {f"{row.stage}/{row.key}": content(tmp_path, row) for row in rows[:2]}
    partial = LocalStore(tmp_path).begin("total", key, inputs)
    (partial / "kept").write_text("x")
    again = run(tmp_path)
    assert (Path(again[-1].path) / "kept").read_text() == "x"
    assert not (Path(run(tmp_path, forced=frozenset({"total"}))[-1].path) / "kept").exists()


def test_the_tracker_hears_whether_a_stage_continues_its_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[tuple[str, bool]] = []

    class Listening(Untracked):
        def start_stage(self, stage: str, item: str, key: str, params: object, continues: bool) -> str:
            started.append((stage, continues))
            return ""

    def fails(out: Path, numbers: tuple[Artifact, ...]) -> Facts:
        (out / "begun").write_text("x")
        raise NetworkFault("cut off")

    monkeypatch.setattr(fails, "__signature__", inspect.signature(total.body), raising=False)
    monkeypatch.setattr(total, "body", fails)
    for scope in (Scope(ORDER), Scope(ORDER), Scope(ORDER, attempt=Attempt.new(frozenset({"total"})))):
        with pytest.raises(NetworkFault):
            built(Runner(settings(tmp_path, scope, tracker=Listening())))
    assert [each for each in started if each[0] == "total"] == [("total", False), ("total", True), ("total", False)]
    assert ("make", False) in started


def test_a_stage_without_inputs_resumes_its_folder(tmp_path: Path) -> None:
    def begin(out: Path, number: Number) -> Facts:
        if not (out / "begun").exists():
            (out / "begun").write_text("")
            raise NetworkFault("gone")
        return {}

    begin.__name__ = "make"
    begins = stage(version=8, resume=True)(begin)
    with engine(running(tmp_path)), pytest.raises(NetworkFault):
        begins(Number())
    with engine(running(tmp_path)):
        assert begins(Number()).path().is_dir()
    assert not list(tmp_path.glob("*/*.partial*"))


def test_a_retry_of_a_forced_stage_resumes_the_previous_try(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path)

    class TwiceOver(Runner):
        def make(self, call: StageCall, failures: list[str]) -> Hit:
            try:
                return super().make(call, failures)
            except NetworkFault:
                return super().make(call, failures)

    monkeypatch.setattr(total, "body", fails_once(NetworkFault("cut off")))
    for tries in (2, 2):
        forced = Scope(ORDER, attempt=Attempt.new(frozenset({"total"})))
        present = built(TwiceOver(settings(tmp_path, forced)))
        assert present.rows[-1].facts == {"tries": tries}, "each forced run starts over, its retry resumes"


def test_an_interrupted_forced_attempt_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path)

    monkeypatch.setattr(total, "body", fails_once(KeyboardInterrupt()))
    every = frozenset(ORDER)
    for attempt in ("first", "second"):
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, forced=every, attempt=attempt)
        assert plan(tmp_path, forced=every, attempt=attempt) == ["cached", "cached", "miss"]
        assert plan(tmp_path, forced=every) == ["miss"] * 3
        rows = run(tmp_path, forced=every, attempt=attempt)
        assert states(rows) == ["cached", "cached", "completed"]
        assert rows[-1].facts == {"tries": 2}, "each attempt starts over and resumes its own try"
        assert plan(tmp_path, forced=every, attempt=attempt) == ["cached"] * 3


def test_a_forced_attempt_keeps_its_artifact_that_another_attempt_was_about_to_replace(tmp_path: Path) -> None:
    every = frozenset(ORDER)
    rows = run(tmp_path, forced=every, attempt="first")
    for row in rows:
        Path(row.path).rename(Path(row.path).with_name(f"{row.key}.replaced-0"))
    assert states(run(tmp_path, forced=every, attempt="first")) == ["cached"] * 3
    for row in rows:
        Path(row.path).rename(Path(row.path).with_name(f"{row.key}.replaced-0"))
    assert states(run(tmp_path, forced=every, attempt="second")) == ["completed"] * 3


def test_an_unforced_run_resumes_a_forced_attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut_off(out: Path, numbers: tuple[Artifact, ...]) -> Facts:
        (out / "kept").write_text("x")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(cut_off, "__signature__", inspect.signature(total.body), raising=False)
        patch.setattr(total, "body", cut_off)
        run(tmp_path, forced=frozenset({"total"}), attempt="first")
    rows = run(tmp_path)
    assert (Path(rows[-1].path) / "kept").exists()
    assert plan(tmp_path, forced=frozenset({"total"}), attempt="first") == ["cached"] * 3, "it was that attempt's work"
    assert plan(tmp_path, forced=frozenset({"total"}), attempt="second") == ["cached", "cached", "miss"]
