"""What the name of a run means is one decision, for artifacts and for the model, whatever else is on record."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_roots import artifact, record, row_of

from flows.inspection.artifact_graph import read_graph
from flows.inspection.artifacts import find_artifact, folders_of, list_artifacts
from flows.inspection.compare import find_system, find_training
from flows.runner.artifact_names import find_artifacts, model_manifests
from flows.runner.named_runs import NamedRun, name_run
from flows.runner.recorded_runs import read_runs
from infra.errors import BadConfiguration
from infra.site import Site
from infra.store.local import LocalStore

BEGAN = datetime(2026, 11, 1, tzinfo=UTC)
SET = ["training.seed=2"]
TRIAL: Mapping[str, Any] = {
    "overrides": ["model.p_drop=0.3", "evaluate=dev"],
    "group": "sweep x-1a2b3c",
    "title": "trial 1",
}
STAGES = ("clean", "train", "translate", "score")


def start(root: Path, hour: int, last: str = "score", **changes: Any) -> None:
    """A run up to a stage; the key of each artifact begins with the hour."""
    store, made = LocalStore(root), []
    for stage in STAGES[: STAGES.index(last) + 1]:
        made.append(artifact(store, stage, f"{hour}{stage}", made[-1:]))
    record(root, "x", BEGAN + timedelta(hours=hour), [*map(row_of, made)], **changes)


def named(root: Path, *overrides: str) -> NamedRun:
    return name_run(read_runs(root, "x"), "x", overrides)


def model(root: Path, *overrides: str) -> set[str]:
    """The hours of the model that commands and the API take."""
    site, store = Site(root=root), LocalStore(root)
    keys = [each.key for each in find_system("x", site, overrides).scores.values()]
    keys += [find_training("x", site, overrides).key]
    keys += [each.key for each in model_manifests(store, "x", "translate", overrides).values()]
    return {key[0] for key in keys}


def test_neither_a_run_with_overrides_nor_a_trial_takes_the_name_of_a_run(tmp_path: Path) -> None:
    start(tmp_path, 1)
    start(tmp_path, 2, overrides=SET)
    start(tmp_path, 3, **TRIAL)
    site = Site(root=tmp_path)
    assert {each.key[0] for each in list_artifacts("x", site)} == {"1"}
    assert [folder.name for folder in folders_of("x/train", site)] == ["1train"]
    assert model(tmp_path) == {"1"}
    labels = read_graph(Site(root=tmp_path)).names
    assert {key[0] for _, key in labels} == {"1"}, "the labels of lineage and of the site"
    assert model(tmp_path, *SET) == {"2"}
    assert [folder.name for folder in folders_of("x/train", site, SET)] == ["2train"]
    with pytest.raises(BadConfiguration, match=r"model\.p_drop"):
        find_artifacts(LocalStore(tmp_path), "x", TRIAL["overrides"])


def test_artifacts_are_of_any_run_and_the_model_is_of_a_finished_one(tmp_path: Path) -> None:
    start(tmp_path, 1)
    start(tmp_path, 2, "train", outcome="FAILED")
    store = LocalStore(tmp_path)
    assert {key[0] for key in find_artifacts(store, "x/train").values()} == {"2"}
    found = find_artifacts(store, "x")
    assert list(found.values()) == ["2clean", "2train", "1translate", "1score"]
    assert model(tmp_path) == {"1"}
    start(tmp_path, 3, "train")
    assert model(tmp_path) == {"1"}, "scores, curves and weights are of one model"


def test_a_name_without_an_item_means_the_runs_own_artifact_where_teachers_have_the_same_stage(tmp_path: Path) -> None:
    site, store = Site(root=tmp_path), LocalStore(tmp_path)
    own, teacher = artifact(store, "train", "1train"), artifact(store, "train", "2train")
    record(tmp_path, "x", BEGAN, [row_of(teacher, "teacher/seed-1"), row_of(own)])
    assert find_artifact("x/train", site).key == "1train"
    assert find_artifact("x/train/teacher/seed-1", site).key == "2train"
    with pytest.raises(BadConfiguration, match="names 2 artifacts"):
        find_artifact("x", site)


def test_where_only_runs_with_overrides_exist_it_is_said_which(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    start(tmp_path, 1, overrides=["training.seed=3"])
    start(tmp_path, 2, overrides=SET)
    start(tmp_path, 3, "clean", overrides=["training.seed=4"], outcome="FAILED")
    assert {key[0] for key in find_artifacts(LocalStore(tmp_path), "x").values()} == {"2"}
    assert "--set training.seed=2" in caplog.text
    assert model(tmp_path) == {"2"}


def test_where_only_trials_exist_the_name_means_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    start(tmp_path, 1, **TRIAL)
    with pytest.raises(BadConfiguration, match="'x'"):
        find_artifacts(LocalStore(tmp_path), "x")
    assert find_artifacts(LocalStore(tmp_path), "") == {}
    assert caplog.messages == [], "a list of all runs says nothing of it"
    with pytest.raises(BadConfiguration, match="no artifact of score"):
        find_system("x", Site(root=tmp_path))


def test_neither_a_limit_nor_the_order_of_settings_makes_another_run(tmp_path: Path) -> None:
    start(tmp_path, 1)
    start(tmp_path, 2, overrides=["expect=train.loss <= 4"])
    assert set(named(tmp_path).artifacts.values()) == {f"2{stage}" for stage in STAGES}
    several = [*SET, "model.p_drop=0.3"]
    start(tmp_path, 3, overrides=several)
    assert model(tmp_path, *several) == model(tmp_path, *reversed(several)) == {"3"}


def test_of_a_stage_with_a_failed_item_the_older_whole_one_counts(tmp_path: Path) -> None:
    def scored(hour: int, **states: str) -> None:
        rows = [{"stage": "score", "item": item, "key": f"{hour}{item}", "state": s} for item, s in states.items()]
        record(tmp_path, "x", BEGAN + timedelta(hours=hour), rows)

    scored(0, dev="completed", test="failed")
    assert named(tmp_path).artifacts == {("score", "dev"): "0dev"}, "no record has the whole stage"
    scored(1, gone="cached", dev="completed")
    scored(2, dev="completed", test="cached")
    scored(3, dev="completed", test="failed")
    assert named(tmp_path).artifacts == {("score", "dev"): "2dev", ("score", "test"): "2test"}


KINDS = st.sampled_from([{}, {"overrides": SET}, TRIAL])
RUNS = st.lists(st.tuples(st.sampled_from(STAGES), st.sampled_from(["FINISHED", "FAILED"]), KINDS), max_size=7)


@given(RUNS)
def test_one_name_never_mixes_two_models(
    tmp_path_factory: pytest.TempPathFactory, runs: list[tuple[str, str, Mapping[str, Any]]]
) -> None:
    root = tmp_path_factory.mktemp("root")
    for hour, (last, outcome, changes) in enumerate(runs):
        rows = [{"stage": stage, "key": f"{hour}{stage}"} for stage in STAGES[: STAGES.index(last) + 1]]
        record(root, "x", BEGAN + timedelta(hours=hour), rows, outcome=outcome, **changes)
    plain = [hour for hour, (_, _, changes) in enumerate(runs) if not changes]
    of_stage = {stage: [h for h in plain if STAGES.index(runs[h][0]) >= STAGES.index(stage)] for stage in STAGES}
    found = named(root)
    if plain:
        newest = {(stage, ""): f"{hours[-1]}{stage}" for stage, hours in of_stage.items() if hours}
        assert found.artifacts == newest
    models = {key[0] for stage in ("train", "translate", "score") for key in found.of_model(stage).values()}
    if scored := [hour for hour in of_stage["score"] if runs[hour][1] == "FINISHED"]:
        assert models == {f"{scored[-1]}"}
    assert all(not each.is_trial for each in found.records)
    assert len({each.overrides for each in found.records}) <= 1
