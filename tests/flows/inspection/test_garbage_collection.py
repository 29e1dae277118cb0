"""``repro gc`` keeps, for each stage, what the newest finished record that has the stage names."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_roots import artifact, chain, record, row_of

from flows.inspection.garbage_collection import find_garbage, remove_garbage
from infra.processes.identity import process_identity
from infra.site import Site
from infra.store.local import LocalStore
from infra.store.states import state_folder
from infra.store.store import Artifact

BEGAN = datetime(2026, 11, 1, tzinfo=UTC)


def start(
    root: Path, hour: int, made: Sequence[Artifact], outcome: str = "FINISHED", overrides: Sequence[str] = ()
) -> None:
    record(
        root, "demo", BEGAN + timedelta(hours=hour), [*map(row_of, made)], outcome=outcome, overrides=list(overrides)
    )


def gone(root: Path) -> set[str]:
    return {each.key for each in find_garbage(Site(root=root)).removable}


@pytest.mark.parametrize("outcome", ["FINISHED", "FAILED"])
def test_a_shorter_run_takes_no_training_away(tmp_path: Path, outcome: str) -> None:
    store = LocalStore(tmp_path)
    text = artifact(store, "download", "d0")
    start(tmp_path, 0, chain(store, text), outcome)
    start(tmp_path, 1, [text, artifact(store, "clean", "c1", [text])])
    assert gone(tmp_path) == set()
    start(tmp_path, 2, chain(store, text, "2"))
    assert gone(tmp_path) == {"c0ffee", "a0ffee", "50ffee", "40ffee", "c1"}, (
        "a whole run takes the place of a whole one"
    )


STAGES = ("download", "clean", "average", "score")


@given(
    st.lists(st.tuples(st.integers(1, 4), st.sampled_from(["FINISHED", "FAILED", "KILLED"]), st.booleans()), max_size=6)
)
def test_of_each_stage_the_newest_finished_record_counts(
    tmp_path_factory: pytest.TempPathFactory, runs: list[tuple[int, str, bool]]
) -> None:
    root = tmp_path_factory.mktemp("root")
    store = LocalStore(root)
    needed: dict[tuple[bool, str], str] = {}
    for number, (length, outcome, changed) in enumerate(runs):
        made = [artifact(store, stage, f"{stage}{number}") for stage in STAGES[:length]]
        start(root, number, made, outcome, ["training.seed=2"] if changed else [])
        if outcome == "FINISHED":
            needed |= {(changed, each.stage): each.key for each in made}
    assert not gone(root) & set(needed.values())


def test_two_runs_in_files_of_one_name_keep_their_own_trainings(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    for hour, run in enumerate(("alpha", "beta")):
        rows = [row_of(artifact(store, "train", run))]
        asked = {"run": f"{run}/run.py:RUN", "until": ""}
        record(tmp_path, run, BEGAN + timedelta(hours=hour), rows, asked=asked)
    assert not gone(tmp_path)


def test_what_another_run_works_with_stays(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    for hour, (run, outcome) in enumerate((("demo", "FINISHED"), ("big", "RUNNING"), ("old", "FINISHED"))):
        rows = [row_of(artifact(store, "train", run))]
        process = process_identity() if outcome == "RUNNING" else ""
        record(tmp_path, run, BEGAN + timedelta(hours=hour), rows, outcome=outcome, process=process)
    assert {each.key for each in find_garbage(Site(root=tmp_path), ["demo"]).removable} == {"old"}


def test_the_state_of_a_training_that_a_new_run_needs_stays(tmp_path: Path) -> None:
    site = Site(root=tmp_path)
    first, second = (artifact(LocalStore(tmp_path), "train", key) for key in ("k1", "k2"))
    states = [state_folder(each.path()) for each in (first, second)]
    for folder in states:
        folder.mkdir()
        (folder / "optimizer").write_bytes(b"12345")
    start(tmp_path, 0, [artifact(LocalStore(tmp_path), "clean", "c1")])
    report = find_garbage(site)
    assert {each.place for each in report.leftovers} == {"train/k1.state", "train/k2.state"}
    start(tmp_path, 1, [first])
    assert {each.place for each in find_garbage(site).leftovers} == {"train/k2.state"}
    assert remove_garbage(site, report) == 5 + sum(each.bytes for each in report.removable if each.key == second.key)
    assert [folder.exists() for folder in states] == [True, False]
