"""What Tracker leaves in MLflow, and that MLflow's absence never reaches the run."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.errors import NetworkFault
from infra.processes.identity import process_identity
from infra.servers.sqlite_addresses import sqlite_file
from infra.tracking.client import end_abandoned, mlflow_client
from infra.tracking.metrics_tail import MetricsTail
from infra.tracking.mlflow_runs import PARENT
from infra.tracking.run_description import flatten, numeric_facts, run_description
from infra.tracking.tracker import NOTE, Tracker
from infra.tracking.write_queue import RETRY_AFTER_SECONDS


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One store for all tests of this file: making its tables takes seconds. Each test has an experiment of its own."""
    return tmp_path_factory.mktemp("tracking")


def begun(root: Path, experiment: str) -> Tracker:
    tracker = Tracker("", root / "mlflow-artifacts")
    assert tracker.start(experiment, f"run of {experiment}", {"overrides": ""}, {}), "MLflow did not answer"
    return tracker


def history(tracker: Tracker, run_id: str, metric: str) -> list[tuple[int, float, int]]:
    return [(m.step, m.value, m.timestamp) for m in tracker.client.get_metric_history(run_id, metric)]


def row(done: int, **numbers: float) -> dict[str, float]:
    return {"time": 1_700_000_000 + done, "done": done, "total": 100, **numbers}


def test_stages_are_children_with_name_key_params_and_facts(root: Path) -> None:
    tracker = begun(root, "children")
    params = {
        "filters": {"class": "Filters", "seed": 1},
        "corpus": {"artifact": "clean", "key": "ab12"},
        "sets": ["a", "b"],
    }
    run_id = tracker.start_stage("score", "val", "k1", params)
    tracker.finish_stage(run_id, "FINISHED", {"bleu": 34.5, "by": {"short": 12}, "signature": "13a", "whole": True})
    tracker.finish("FINISHED")
    run = tracker.client.get_run(run_id)
    assert run.info.run_name == "score val"
    assert run.info.status == "FINISHED"
    assert {name: run.data.tags[name] for name in (PARENT, "stage", "item", "stage_key", "signature", "whole")} == {
        PARENT: tracker.run_id,
        "stage": "score",
        "item": "val",
        "stage_key": "k1",
        "signature": "13a",
        "whole": "True",
    }
    assert run.data.params == {
        "filters.class": "Filters",
        "filters.seed": "1",
        "corpus": "clean/ab12",
        "sets": '["a", "b"]',
    }
    assert run.data.metrics == {"bleu": 34.5, "by.short": 12.0}
    parent = tracker.client.get_run(tracker.run_id)
    assert parent.info.status == "FINISHED"
    assert parent.data.metrics["val.bleu"] == 34.5
    assert f"#/experiments/{tracker.experiment_id}/runs/{run_id}" in parent.data.tags[NOTE]
    assert parent.info.artifact_uri.startswith((root / "mlflow-artifacts" / "children").as_uri())


def test_a_killed_stage_is_reopened_without_repeated_steps(root: Path) -> None:
    first = begun(root, "killed")
    run_id = first.start_stage("train", "", "k2", {"updates": 4})
    first.log_rows(run_id, [row(1, loss=3.0), row(2, loss=2.0), row(2, dev_perplexity=9.0)])

    second = begun(root, "killed")
    assert second.start_stage("train", "", "k2", {"updates": 4}) == run_id
    again = [
        row(1, loss=3.0),
        row(2, loss=2.1),
        row(2, dev_perplexity=9.0),
        row(3, loss=1.5),
        row(4, dev_perplexity=8.0),
    ]
    second.log_rows(run_id, [{**r, "time": r["time"] + 500} for r in again])
    second.finish_stage(run_id, "FINISHED", {})
    assert second.client.get_run(run_id).data.tags[PARENT] == second.run_id != first.run_id
    assert [(step, value) for step, value, _ in history(second, run_id, "loss")] == [(1, 3.0), (2, 2.0), (3, 1.5)]
    assert [(step, value) for step, value, _ in history(second, run_id, "dev_perplexity")] == [(2, 9.0), (4, 8.0)]
    assert history(second, run_id, "loss")[-1][2] == (1_700_000_003 + 500) * 1000

    assert begun(root, "killed").start_stage("train", "", "k2", {"updates": 4}) != run_id, "a finished run was reopened"


def test_a_run_of_another_machine_is_not_reopened(root: Path) -> None:
    here = begun(root, "elsewhere")
    run_id = here.start_stage("train", "", "k3", {})
    there = Tracker(here.uri, root / "another-root" / "mlflow-artifacts")
    there.start("elsewhere", "run", {}, {})
    assert there.start_stage("train", "", "k3", {}) not in ("", run_id)


def test_a_failed_try_names_its_failure_until_a_later_one_ends_well(root: Path) -> None:
    tracker = begun(root, "failure")
    run_id = tracker.start_stage("clean", "", "k4", {})
    tracker.finish_stage(run_id, "FAILED", {"failure": "line 7"})
    failed = tracker.client.get_run(run_id)
    assert (failed.info.status, failed.data.tags["failure"]) == ("FAILED", "line 7")
    assert tracker.start_stage("clean", "", "k4", {}) == run_id
    tracker.finish_stage(run_id, "FINISHED", {"pairs": 3})
    mended = tracker.client.get_run(run_id)
    assert (mended.info.status, "failure" in mended.data.tags) == ("FINISHED", False)


def test_a_cached_stage_links_to_the_run_that_made_it_in_any_experiment(root: Path) -> None:
    maker = begun(root, "maker")
    made = maker.start_stage("score", "val", "k5", {})
    maker.finish_stage(made, "FINISHED", {"bleu": 30.25})
    user = begun(root, "user")
    user.cached("score", "val", "k5", {"bleu": 30.25})
    user.cached("clean", "", "never made here", {})
    user.finish("FINISHED")
    parent = user.client.get_run(user.run_id)
    assert f"#/experiments/{maker.experiment_id}/runs/{made}" in parent.data.tags[NOTE]
    assert "| clean | cached |" in parent.data.tags[NOTE]
    assert parent.data.metrics["val.bleu"] == 30.25


def test_more_rows_than_one_request_takes(root: Path) -> None:
    tracker = begun(root, "many")
    run_id = tracker.start_stage("train", "", "k6", {f"p{i}": i for i in range(250)})
    tracker.log_rows(run_id, (row(done, loss=1.0 / done) for done in range(1, 2_502)))
    assert len(history(tracker, run_id, "loss")) == 2_501
    assert len(tracker.client.get_run(run_id).data.params) == 250


def test_artifacts_and_data_are_kept(root: Path, tmp_path: Path) -> None:
    tracker = begun(root, "artifacts")
    run_id = tracker.start_stage("report", "", "k7", {})
    (tmp_path / "report.html").write_text("<p>")
    tracker.log_artifacts(run_id, [tmp_path / "report.html"], "report")
    tracker.log_input(run_id, "dev", "val", "d" * 64, "multi30k", {"pairs": 7})
    assert [file.path for file in tracker.client.list_artifacts(run_id, "report")] == ["report/report.html"]
    used = tracker.client.get_run(run_id).inputs.dataset_inputs[0].dataset
    assert (used.name, used.digest, json.loads(used.profile)) == ("val", "d" * 36, {"pairs": 7})


def test_an_absent_store_warns_once_and_stops_nothing(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tracker = begun(root, "absent")
    there = tracker.client
    tracker._runs._client = _Absent()
    run_id = tracker.start_stage("train", "", "k8", {})
    with pytest.raises(NetworkFault, match="does not answer"):
        tracker.resolve_run_id(run_id)
    (tmp_path / "page").write_text("")
    tracker.log_rows(run_id, [row(1, loss=1.0)])
    tracker.log_rows(run_id, [row(2, loss=0.5), row(2, loss=0.5)])
    tracker.log_artifacts(run_id, [tmp_path / "page"])
    tracker.finish_stage(run_id, "FINISHED", {"updates": 2})
    tracker.cached("score", "val", "k9", {"bleu": 3.0})
    assert capsys.readouterr().err.count("repro:") == 1

    tracker._runs._client = there
    now = time.monotonic()
    monkeypatch.setattr("infra.tracking.write_queue.time.monotonic", lambda: now + RETRY_AFTER_SECONDS + 1)
    tracker.finish("FINISHED")
    parent = there.get_run(tracker.run_id)
    assert (parent.info.status, parent.data.metrics) == ("FINISHED", {"val.bleu": 3.0})
    stage = there.get_run(tracker.resolve_run_id(run_id))
    assert (stage.info.status, stage.data.tags[PARENT]) == ("FINISHED", tracker.run_id), "a stage begun meanwhile"
    assert [(step, value) for step, value, _ in history(tracker, stage.info.run_id, "loss")] == [(1, 1.0), (2, 0.5)]
    assert stage.data.metrics["updates"] == 2
    assert [file.path for file in there.list_artifacts(stage.info.run_id)] == ["page"]
    assert stage.info.start_time <= stage.info.end_time <= time.time() * 1000


def test_a_lost_answer_makes_no_second_run(root: Path) -> None:
    """A server that is killed after it did what was asked, and before it said so."""
    tracker = Tracker("", root / "mlflow-artifacts")
    there = tracker.client
    tracker._runs._client = _Deaf(there, "create_run")
    assert tracker.start("deaf", "run", {}, {}) == ""
    tracker._runs._client = there
    tracker._writes.retry_now()
    run_id = tracker.start_stage("train", "", "k20", {})
    tracker._runs._client = _Deaf(there, "log_batch")
    tracker.log_rows(run_id, [row(1, loss=1.0)])
    tracker._runs._client = there
    tracker._writes.retry_now()
    tracker.log_rows(run_id, [row(2, loss=0.5)])
    tracker.finish_stage(run_id, "FINISHED", {})
    tracker.finish("FINISHED")
    runs = there.search_runs([there.get_experiment_by_name("deaf").experiment_id])
    assert [run.info.status for run in runs] == ["FINISHED"] * 2
    assert [(step, value) for step, value, _ in history(tracker, run_id, "loss")] == [(1, 1.0), (2, 0.5)]


def test_runs_of_dead_processes_are_ended(root: Path) -> None:
    process = subprocess.Popen(["sleep", "60"])
    tracker, other = begun(root, "abandoned"), begun(root, "abandoned")
    stage = other.start_stage("clean", "", "k21", {})
    word = process_identity(process.pid)
    process.kill()
    process.wait()
    for run_id in (other.run_id, stage):
        other.client.set_tag(run_id, "process", word)
    assert end_abandoned(tracker.uri) >= 2
    found = [tracker.client.get_run(run_id) for run_id in (tracker.run_id, other.run_id, stage)]
    assert [run.info.status for run in found] == ["RUNNING", "KILLED", "KILLED"]
    assert found[1].data.tags["failure"] == "its process is gone"
    assert begun(root, "abandoned").start_stage("clean", "", "k21", {}) == stage
    end_abandoned(tracker.uri)
    assert tracker.client.get_run(stage).info.status == "RUNNING", "whoever took it up holds it"


class _Deaf:
    """A client that does what it is told, and fails to hear that it was done, and whatever is asked after that."""

    def __init__(self, client: Any, deaf_to: str) -> None:
        self.client, self.deaf_to, self.gone = client, deaf_to, False

    def __getattr__(self, name: str) -> Any:
        if self.gone:
            raise ConnectionError("nobody listens")
        return self._once if name == self.deaf_to else getattr(self.client, name)

    def _once(self, *words: Any, **named: Any) -> Any:
        getattr(self.client, self.deaf_to)(*words, **named)
        self.gone = True
        raise ConnectionError("broken off")


class _Absent:
    def __getattr__(self, name: str) -> object:
        raise ConnectionError("nobody listens")


def test_a_short_absence_loses_no_rows(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tracker = begun(root, "short absence")
    run_id = tracker.start_stage("train", "", "k10", {})
    there, tracker._runs._client = tracker.client, _Absent()
    tracker.log_rows(run_id, [row(1, loss=1.0)])
    tracker._runs._client = there
    tracker.log_rows(run_id, [row(2, loss=0.5)])
    assert history(tracker, run_id, "loss") == [], "asked again at once"
    now = time.monotonic()
    monkeypatch.setattr("infra.tracking.write_queue.time.monotonic", lambda: now + RETRY_AFTER_SECONDS + 1)
    tracker.log_rows(run_id, [row(3, loss=0.25)])
    assert [step for step, _, _ in history(tracker, run_id, "loss")] == [1, 2, 3]


def test_a_refused_write_does_not_block_others(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tracker = begun(root, "refused")
    run_id = tracker.start_stage("clean", "", "k11", {})
    tracker.log_artifacts(run_id, [root / "no such file"])
    tracker.finish_stage(run_id, "UNHEARD-OF", {"pairs": 1})
    tracker.finish("FINISHED")
    said = capsys.readouterr().err
    assert "refused no such file" in said
    assert "did not take the end of a stage" in said
    assert tracker.client.get_run(tracker.run_id).info.status == "FINISHED"


def test_an_unusable_address_stops_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    tracker = Tracker(f"sqlite:///{tmp_path}/file/mlflow.db", tmp_path / "artifacts")
    assert tracker.start("run", "run", {}, {}) == ""
    tracker.finish("FINISHED")
    assert "goes on without" in capsys.readouterr().err


def test_a_folder_may_be_called_anything(tmp_path: Path) -> None:
    folder = tmp_path / "100%2F of it? yes"
    tracker = Tracker("", folder / "mlflow-artifacts")
    assert tracker.start("run", "run", {}, {})
    tracker.finish("FINISHED")
    assert (folder / "mlflow.db").is_file()
    assert sqlite_file(tracker.uri) == folder / "mlflow.db"


def test_processes_that_start_at_once_share_a_fresh_store(tmp_path: Path) -> None:
    code = f"""
from pathlib import Path
from infra.tracking.tracker import Tracker
tracker = Tracker("", Path({str(tmp_path)!r}) / "mlflow-artifacts")
tracker.start("same", "run", {{}}, {{}})
tracker.finish("FINISHED")
"""
    started = [subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True) for _ in range(2)]
    assert [process.communicate()[1] for process in started] == ["", ""]
    opened = mlflow_client(f"sqlite:///{tmp_path}/mlflow.db")
    runs = opened.search_runs([opened.get_experiment_by_name("same").experiment_id])
    assert [run.info.status for run in runs] == ["FINISHED"] * 2


@given(st.lists(st.dictionaries(st.text(max_size=5), st.integers(), max_size=3), max_size=8), st.data())
def test_the_tail_gives_each_row_once_however_the_file_grows(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, int]], data: st.DataObject
) -> None:
    file = tmp_path_factory.mktemp("tail") / "metrics.jsonl"
    tail, seen = MetricsTail(file), list[dict[str, int]]()
    assert tail.read() == []
    whole = b"".join(json.dumps(r, ensure_ascii=False).encode() + b"\n" for r in rows)
    while whole:
        cut = data.draw(st.integers(1, len(whole)))
        with file.open("ab") as growing:
            growing.write(whole[:cut])
        whole = whole[cut:]
        seen += tail.read()
    assert seen == rows


def test_the_tail_skips_what_a_killed_writer_left(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    tail = MetricsTail(file)
    file.write_bytes(b'{"done": 1}\n{"done": 2, "lo\n{"done": 3}\n\xff\x00\n7\n{"done": 4')
    assert tail.read() == [{"done": 1}, {"done": 3}]
    file.write_bytes(b'{"done": 5}\n')
    assert tail.read() == [{"done": 5}], "a file begun anew is read from its start"


NESTED = st.recursive(
    st.integers() | st.floats(allow_nan=False) | st.text(max_size=5) | st.booleans(),
    lambda inner: st.dictionaries(st.text("abc", min_size=1, max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text("abc", min_size=1, max_size=3), NESTED, max_size=4))
def test_flat_keeps_every_leaf_and_its_path(values: dict[str, object]) -> None:
    def leaves(value: object) -> list[object]:
        return [leaf for part in value.values() for leaf in leaves(part)] if isinstance(value, dict) else [value]

    assert list(flatten(values).values()) == leaves(values)
    for path in flatten(values):
        at: object = values
        for name in path.split("."):
            assert isinstance(at, dict)
            at = at[name]
        assert not isinstance(at, dict)
    assert all(not isinstance(number, bool) for number in numeric_facts(values).values())


@given(st.text(), st.text())
def test_no_text_breaks_the_note_s_table(item: str, fact: str) -> None:
    from infra.tracking.run_description import StageRow

    lines = run_description([StageRow("clean", item, "k", "completed", facts={"a": fact})], "score").splitlines()
    assert len(lines) == 3
    assert all(line.count("|") == 6 for line in lines)
