"""The tracker's runs in MLflow; an unreachable MLflow never stops a run."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from dead_process import dead_process
from hypothesis import given
from hypothesis import strategies as st

from infra.errors import NetworkFault
from infra.processes.identity import process_identity
from infra.tracking.client import end_abandoned, experiment_page
from infra.tracking.metrics_tail import MetricsTail
from infra.tracking.mlflow_runs import PARENT, RunFile
from infra.tracking.run_description import StageRow, run_description
from infra.tracking.tracker import NOTE, Tracker
from infra.tracking.write_queue import RETRY_AFTER_SECONDS


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One store for all tests of this file: making its tables takes seconds. Each test uses its own experiment."""
    return tmp_path_factory.mktemp("tracking")


def started_tracker(root: Path, experiment: str) -> Tracker:
    tracker = Tracker("", root / "mlflow-artifacts")
    assert tracker.start(experiment, f"run of {experiment}", {"overrides": ""}, {}), "MLflow did not answer"
    return tracker


def history(tracker: Tracker, run_id: str, metric: str) -> list[tuple[int, float, int]]:
    return [(m.step, m.value, m.timestamp) for m in tracker.client.get_metric_history(run_id, metric)]


def row(done: int, **numbers: float) -> dict[str, float]:
    return {"time": 1_700_000_000 + done, "done": done, "total": 100, **numbers}


def test_stages_are_children_with_name_key_params_and_facts(root: Path) -> None:
    tracker = started_tracker(root, "children")
    params = {
        "filters": {"class": "Filters", "seed": 1},
        "corpus": {"artifact": "clean", "key": "ab12"},
        "sets": ["a", "b"],
    }
    run_id = tracker.start_stage("score", "val", "k1", params)
    tracker.finish_stage(run_id, "FINISHED", {"bleu": 34.5, "by": {"short": 12}, "signature": "13a", "whole": True})
    tracker.finish("FINISHED")
    run = tracker.client.get_run(run_id)
    assert "overrides" not in tracker.client.get_run(tracker.run_id).data.tags, "an empty tag says nothing"
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
    assert f"#/experiments/{tracker._runs.experiment_id}/runs/{run_id}" in parent.data.tags[NOTE]
    assert parent.info.artifact_uri.startswith((root / "mlflow-artifacts" / "children").as_uri())


def test_children_are_named_by_the_settings_and_parents_have_curves_and_links(root: Path) -> None:
    tracker = Tracker("", root / "mlflow-artifacts")
    tracker.start("named", "named · p_drop 0.2", {"settings": "p_drop 0.2"}, {})
    train = tracker.start_stage("train", "", "n1", {})
    other = tracker.start_stage("train", "seed-2", "n2", {})
    curves = ("loss", "dev_perplexity")
    tracker.log_rows(train, [row(1, loss=3.0, learning_rate=0.1), row(2, dev_perplexity=9.0)], curves)
    tracker.log_rows(other, [row(3, loss=1.0)])
    tracker.finish_stage(train, "FINISHED", {})
    report = tracker.start_stage("report", "", "n3", {})
    tracker.finish("FINISHED")
    named = [tracker.client.get_run(each).info.run_name for each in (train, other)]
    assert named == ["train · p_drop 0.2", "train seed-2 · p_drop 0.2"]
    assert [history(tracker, tracker.run_id, name)[0][:2] for name in ("loss", "dev_perplexity")] == [
        (1, 3.0),
        (2, 9.0),
    ]
    assert len(history(tracker, tracker.run_id, "loss")) == 1, "the training of another seed has curves of its own"
    assert history(tracker, tracker.run_id, "learning_rate") == []
    note = tracker.client.get_run(tracker.run_id).data.tags[NOTE]
    pages = [f"#/experiments/{tracker._runs.experiment_id}/runs/{each}" for each in (train, report)]
    assert note.startswith(f"[Curves]({pages[0]}/model-metrics) · [Report]({pages[1]}/artifacts)\n")


def test_a_cached_stage_leads_to_the_run_of_its_own_folder_and_a_continued_run_keeps_its_text(root: Path) -> None:
    tracker = Tracker("", root / "mlflow-artifacts", token="group 1")
    tracker.start("shared", "group", {}, {})
    own = tracker.start_stage("train", "", "k30", {})
    tracker.finish_stage(own, "FINISHED", {})
    tracker.describe("the best trial")
    tracker.finish("FINISHED")
    theirs = Tracker(tracker.uri, root / "elsewhere" / "mlflow-artifacts")
    theirs.start("shared", "theirs", {}, {})
    theirs.finish_stage(theirs.start_stage("train", "", "k30", {}), "FINISHED", {})
    theirs.finish("FINISHED")
    again = Tracker("", root / "mlflow-artifacts", token="group 1")
    again.start("shared", "group", {}, {})
    assert again._runs.find_finished("k30")[0] == own
    again.finish("KILLED")
    assert again.run_id == tracker.run_id
    assert again.client.get_run(again.run_id).data.tags[NOTE] == "the best trial"


def test_the_page_of_an_experiment_is_found_without_mlflow(root: Path) -> None:
    tracker = started_tracker(root, "page")
    assert experiment_page(tracker.uri, "page") == f"#/experiments/{tracker._runs.experiment_id}/runs"
    assert experiment_page(tracker.uri, "none of this name") == ""
    assert experiment_page("http://127.0.0.1:9", "page") == ""


def test_a_killed_stage_is_reopened_without_repeated_steps(root: Path) -> None:
    first = started_tracker(root, "killed")
    run_id = first.start_stage("train", "", "k2", {"updates": 4})
    first.log_rows(run_id, [row(1, loss=3.0), row(2, loss=2.0), row(2, dev_perplexity=9.0)])

    second = started_tracker(root, "killed")
    assert second.start_stage("train", "", "k2", {"updates": 4}, continues=True) == run_id
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


def test_a_training_from_update_1_does_not_continue_the_curve_of_the_failed_one(root: Path) -> None:
    first = started_tracker(root, "again")
    without_curve = first.start_stage("translate", "", "t", {})
    failed = first.start_stage("train", "", "k3", {})
    first.log_rows(failed, [row(1, loss=3.0), row(2, loss=2.0)])
    for run_id in (without_curve, failed):
        first.finish_stage(run_id, "FAILED", {})

    second = started_tracker(root, "again")
    assert second.start_stage("translate", "", "t", {}) == without_curve
    again = second.start_stage("train", "", "k3", {})
    second.log_rows(again, [row(1, loss=2.5), row(2, loss=1.5)])
    assert [value for _, value, _ in history(second, again, "loss")] == [2.5, 1.5]
    assert [value for _, value, _ in history(second, failed, "loss")] == [3.0, 2.0]

    assert started_tracker(root, "killed").start_stage("train", "", "k2", {"updates": 4}) != run_id, (
        "a finished run was reopened"
    )


def test_a_run_of_another_machine_is_not_reopened(root: Path) -> None:
    here = started_tracker(root, "elsewhere")
    run_id = here.start_stage("train", "", "k3", {})
    there = Tracker(here.uri, root / "another-root" / "mlflow-artifacts")
    there.start("elsewhere", "run", {}, {})
    assert there.start_stage("train", "", "k3", {}) not in ("", run_id)


def test_a_failed_stage_names_its_failure_until_a_retry_succeeds(root: Path) -> None:
    tracker = started_tracker(root, "failure")
    run_id = tracker.start_stage("clean", "", "k4", {})
    tracker.finish_stage(run_id, "FAILED", {"failure": "line 7"})
    failed = tracker.client.get_run(run_id)
    assert (failed.info.status, failed.data.tags["failure"]) == ("FAILED", "line 7")
    assert tracker.start_stage("clean", "", "k4", {}) == run_id
    tracker.finish_stage(run_id, "FINISHED", {"pairs": 3})
    retried = tracker.client.get_run(run_id)
    assert (retried.info.status, "failure" in retried.data.tags) == ("FINISHED", False)


def test_a_continued_group_is_at_work_again_in_this_process(root: Path) -> None:
    killed = Tracker("", root / "mlflow-artifacts", token="group")
    run_id = killed.start("continued", "group", {}, {})
    for tag in ("process", "failure"):
        killed.client.set_tag(run_id, tag, "of a process that is gone")
    killed.client.set_terminated(run_id, "KILLED")
    again = Tracker("", root / "mlflow-artifacts", token="group")
    assert again.start("continued", "group", {}, {}) == run_id
    run = again.client.get_run(run_id)
    assert (run.info.status, run.data.tags["process"]) == ("RUNNING", process_identity())
    assert not {"failure", PARENT} & {*run.data.tags}


def test_a_cached_stage_links_to_the_run_that_made_it_in_any_experiment(root: Path) -> None:
    maker = started_tracker(root, "maker")
    made = maker.start_stage("score", "val", "k5", {})
    maker.finish_stage(made, "FINISHED", {"bleu": 30.25})
    user = started_tracker(root, "user")
    user.cached("score", "val", "k5", {"bleu": 30.25})
    user.cached("clean", "", "never made here", {})
    user.finish("FINISHED")
    parent = user.client.get_run(user.run_id)
    assert f"#/experiments/{maker._runs.experiment_id}/runs/{made}" in parent.data.tags[NOTE]
    assert "| clean | cached |" in parent.data.tags[NOTE]
    assert parent.data.metrics["val.bleu"] == 30.25


def test_rows_beyond_the_limit_of_one_request_are_logged(root: Path) -> None:
    tracker = started_tracker(root, "many")
    run_id = tracker.start_stage("train", "", "k6", {f"p{i}": i for i in range(250)})
    tracker.log_rows(run_id, (row(done, loss=1.0 / done) for done in range(1, 2_502)))
    assert len(history(tracker, run_id, "loss")) == 2_501
    assert len(tracker.client.get_run(run_id).data.params) == 250


def test_an_unreachable_store_warns_once_and_loses_nothing(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tracker = started_tracker(root, "absent")
    client = tracker.client
    tracker._runs.client = _Unreachable()
    run_id = tracker.start_stage("train", "", "k8", {})
    with pytest.raises(NetworkFault, match="does not answer"):
        tracker.resolve_run_id(run_id)
    tracker.log_rows(run_id, [row(1, loss=1.0)])
    tracker.log_rows(run_id, [row(2, loss=0.5), row(2, loss=0.5)])
    tracker.log_files(run_id, lambda: [RunFile("page", b"")])
    tracker.finish_stage(run_id, "FINISHED", {"updates": 2})
    tracker.cached("score", "val", "k9", {"bleu": 3.0})
    assert capsys.readouterr().err.count("repro:") == 1

    tracker._runs.client = client
    tracker.cached("clean", "", "k10", {"pairs": 3})
    assert not client.get_run(tracker.run_id).data.metrics, "it waits before it asks again"
    now = time.monotonic()
    monkeypatch.setattr("infra.tracking.write_queue.time.monotonic", lambda: now + RETRY_AFTER_SECONDS + 1)
    tracker.finish("FINISHED")
    parent = client.get_run(tracker.run_id)
    assert (parent.info.status, parent.data.metrics["val.bleu"]) == ("FINISHED", 3.0)
    stage = client.get_run(tracker.resolve_run_id(run_id))
    assert (stage.info.status, stage.data.tags[PARENT]) == ("FINISHED", tracker.run_id), (
        "a stage that started while the store was unreachable"
    )
    assert [(step, value) for step, value, _ in history(tracker, stage.info.run_id, "loss")] == [(1, 1.0), (2, 0.5)]
    assert stage.data.metrics["updates"] == 2
    assert [file.path for file in client.list_artifacts(stage.info.run_id)] == ["page"]
    assert stage.info.start_time <= stage.info.end_time <= time.time() * 1000


def test_a_lost_response_makes_no_second_run(root: Path) -> None:
    """The server is killed after it stored the request and before it responds."""
    tracker = Tracker("", root / "mlflow-artifacts")
    client = tracker.client
    tracker._runs.client = _LosesResponse(client, "create_run")
    assert tracker.start("deaf", "run", {"start": "", "site": "local"}, {}) == ""
    tracker._runs.client = client
    tracker._writes.retry_now()
    run_id = tracker.start_stage("train", "", "k20", {})
    tracker._runs.client = _LosesResponse(client, "log_batch")
    tracker.log_rows(run_id, [row(1, loss=1.0)])
    tracker._runs.client = client
    tracker._writes.retry_now()
    tracker.log_rows(run_id, [row(2, loss=0.5)])
    tracker.finish_stage(run_id, "FINISHED", {})
    tracker.finish("FINISHED")
    runs = client.search_runs([client.get_experiment_by_name("deaf").experiment_id])
    assert [run.info.status for run in runs] == ["FINISHED"] * 2
    assert [(step, value) for step, value, _ in history(tracker, run_id, "loss")] == [(1, 1.0), (2, 0.5)]


def test_runs_of_dead_processes_are_ended(root: Path) -> None:
    tracker, other = started_tracker(root, "abandoned"), started_tracker(root, "abandoned")
    stage = other.start_stage("clean", "", "k21", {})
    for run_id in (other.run_id, stage):
        other.client.set_tag(run_id, "process", dead_process())
    assert end_abandoned(tracker.uri) >= 2
    found = [tracker.client.get_run(run_id) for run_id in (tracker.run_id, other.run_id, stage)]
    assert [run.info.status for run in found] == ["RUNNING", "KILLED", "KILLED"]
    assert found[1].data.tags["failure"] == "its process is gone"
    assert started_tracker(root, "abandoned").start_stage("clean", "", "k21", {}) == stage
    end_abandoned(tracker.uri)
    assert tracker.client.get_run(stage).info.status == "RUNNING", "the resumed run belongs to this process"


class _LosesResponse:
    """A client that loses the response to one call and fails every call after it."""

    def __init__(self, client: Any, method: str) -> None:
        self.client, self.method, self.disconnected = client, method, False

    def __getattr__(self, name: str) -> Any:
        if self.disconnected:
            raise ConnectionError("connection refused")
        return self._once if name == self.method else getattr(self.client, name)

    def _once(self, *arguments: Any, **named: Any) -> Any:
        getattr(self.client, self.method)(*arguments, **named)
        self.disconnected = True
        raise ConnectionError("broken off")


class _Unreachable:
    def __getattr__(self, name: str) -> object:
        raise ConnectionError("connection refused")


def test_a_write_that_fails_once_at_the_end_is_repeated(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server under load answers a cheap request, but let the write before it run into its time limit."""
    monkeypatch.setattr("infra.tracking.write_queue.POLL_SECONDS", 0.01)
    tracker = started_tracker(root, "slow")
    run_id = tracker.start_stage("train", "", "k12", {})
    client = tracker.client
    tracker._runs.client = _Unreachable()
    tracker.log_rows(run_id, [row(1, loss=1.0)])
    tracker._runs.client = _FailsOnce(client, "log_batch")
    tracker.finish("FINISHED")
    assert [step for step, _, _ in history(tracker, run_id, "loss")] == [1]


class _FailsOnce(_LosesResponse):
    """A client whose one method fails at the first call."""

    def __getattr__(self, name: str) -> Any:
        if name == self.method and not self.disconnected:
            self.disconnected = True
            raise ConnectionError("timed out")
        return getattr(self.client, name)


def test_a_refused_write_does_not_block_others(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("infra.tracking.write_queue.POLL_SECONDS", 0.01)
    tracker = started_tracker(root, "refused")
    run_id = tracker.start_stage("clean", "", "k11", {})
    tracker.log_files(run_id, lambda: [{}["no such column"]])
    tracker.finish_stage(run_id, "UNHEARD-OF", {"pairs": 1})
    tracker.finish("FINISHED")
    said = capsys.readouterr().err
    assert "refused files: 'no such column'" in said
    assert "refused the end of a stage" in said
    assert tracker.client.get_run(tracker.run_id).info.status == "FINISHED"


def test_an_unusable_address_does_not_stop_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    tracker = Tracker(f"sqlite:///{tmp_path}/file/mlflow.db", tmp_path / "artifacts")
    assert tracker.start("run", "run", {}, {}) == ""
    tracker.finish("FINISHED")
    assert "continues meanwhile" in capsys.readouterr().err


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


def test_the_tail_skips_incomplete_lines_of_a_killed_writer(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    tail = MetricsTail(file)
    file.write_bytes(b'{"done": 1}\n{"done": 2, "lo\n{"done": 3}\n\xff\x00\n7\n{"done": 4')
    assert tail.read() == [{"done": 1}, {"done": 3}]
    file.write_bytes(b'{"done": 5}\n')
    assert tail.read() == [{"done": 5}], "a replaced file is read from its start"


@given(st.text())
def test_no_text_breaks_the_table_of_the_note(item: str) -> None:
    lines = run_description([StageRow("clean", item, "k", "completed")]).splitlines()
    assert len(lines) == 3
    assert all(line.count("|") == 3 for line in lines)
