"""Deployments on a real Prefect server, executed by real workers of two pools that share only a bucket."""

import contextlib
import json
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import psutil
import pytest
from mlflow import MlflowClient
from prefect_environment import PrefectEnvironment
from s3_server import Server
from small_pipeline import write_run_file

from flows.reproduce import STAGES

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def prefect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrefectEnvironment]:
    """A server with everything deployed, without workers."""
    made = PrefectEnvironment(tmp_path_factory.mktemp("prefect"))
    try:
        made.repro("deploy")
        yield made
    finally:
        made.end()


def deployed(prefect: PrefectEnvironment) -> dict[str, Any]:
    """Pools, deployments and automations with their ids, without times of polling."""
    with prefect.client() as client:
        names = {"id", "name", "flow_id", "parameters", "tags", "description", "work_pool_name", "entrypoint"}
        found = {
            each.name: each.model_dump(mode="json", include=names | {"parameter_openapi_schema"})
            | {"schedules": [(str(s.id), s.slug, s.active, f"{s.schedule}") for s in each.schedules]}
            for each in client.read_deployments()
        }
        pools = {pool.name: str(pool.id) for pool in client.read_work_pools()}
        return {"deployments": found, "pools": pools, "automations": [str(a.id) for a in client.read_automations()]}


def test_deploying_twice_changes_nothing_and_keeps_schedules_active_or_paused(prefect: PrefectEnvironment) -> None:
    before = deployed(prefect)
    assert set(before["pools"]) == {"cpu", "gpu"}
    assert "nightly active" in prefect.repro("deploy", "demo", "--activate")
    now = deployed(prefect)
    ((was, is_),) = zip(
        before["deployments"]["demo"]["schedules"], now["deployments"]["demo"]["schedules"], strict=True
    )
    assert is_ == (was[0], was[1], True, was[3])
    prefect.repro("deploy")
    assert deployed(prefect) == now, "a schedule that a person activated stays active"
    prefect.repro("deploy", "demo", "--pause")
    assert deployed(prefect) == before
    form = before["deployments"]["demo"]["parameter_openapi_schema"]["properties"]
    assert set(form) == {"run", "from_stage", "until", "force", "overrides", "site"}
    assert all(field["title"] and field["description"] for field in form.values())
    assert "train" in form["from_stage"]["enum"]
    assert "train" in form["force"]["items"]["enum"]
    assert form["site"]["enum"] == ["local", "gpu"]


@pytest.fixture
def workers(prefect: PrefectEnvironment, s3: Server, tmp_path: Path) -> Iterator[str]:
    """Two workers that share a bucket and MLflow, each with a cache of its own; gives the name of the small run."""
    runs = write_run_file(tmp_path / "my_runs.py", tmp_path / "mirror")
    together = {
        "REPRO_ROOT": f"s3://{s3.bucket}/prefix",
        "REPRO_MIRRORS": str(tmp_path / "mirror"),
        "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db",
    }
    before = len(prefect.processes)
    prefect.worker("cpu", **together, REPRO_CACHE=str(tmp_path / "cpu"), REPRO_GPU_POOL="gpu")
    prefect.worker("gpu", **together, REPRO_CACHE=str(tmp_path / "gpu"))
    yield f"{runs}:SMALL"
    prefect.end(before)


def test_gpu_stages_run_once_in_the_gpu_pool_for_two_runs(
    prefect: PrefectEnvironment, workers: str, tmp_path: Path
) -> None:
    before = [len(prefect.children(stage)) for stage in ("train", "translate")]
    both = [prefect.begin("reproduce/demo", run=workers), prefect.begin("reproduce/demo", run=workers, until="train")]
    ended = [prefect.ended(run) for run in both]
    assert [run.state and run.state.name for run in ended] == ["Completed"] * 2, [run.state for run in ended]
    assert ended[0].state
    assert "small/1 · dev: bleu " in (ended[0].state.message or "")
    assert [len(prefect.children(stage)) for stage in ("train", "translate")] == [before[0] + 1, before[1] + 2]
    client = MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")
    runs = client.search_runs([each.experiment_id for each in client.search_experiments()])
    parents = {run.info.run_id for run in runs if "stage" not in run.data.tags}
    assert len(parents) == 2
    places: dict[str, set[str]] = {}
    for run in runs:
        assert run.info.status == "FINISHED"
        if run.info.run_id not in parents:
            assert run.data.tags["mlflow.parentRunId"] in parents
            cache = Path(run.data.tags["place"].partition(":")[2]).relative_to(tmp_path).parts[0]
            places.setdefault(cache, set()).add(run.data.tags["stage"])
    assert places == {"cpu": set(STAGES) - {"train", "translate"}, "gpu": {"train", "translate"}}


def test_a_remote_failure_fails_the_run_and_both_outcomes_are_notified(
    prefect: PrefectEnvironment, workers: str, listener: "Listener"
) -> None:
    printed = prefect.repro("deploy", "demo", REPRO_NOTIFY_URL=f"{listener.address}/hidden-word")
    assert "hidden-word" not in printed
    before = deployed(prefect)
    prefect.repro("deploy", "demo", "--notify", f"{listener.address}/hidden-word")
    assert deployed(prefect) == before
    assert len(before["automations"]) == 2, "one for missing heartbeats, one for notifications"
    trained = len(prefect.children("train"))
    failed = prefect.ended(prefect.begin("reproduce/demo", run=workers, overrides=["training.factor=1e30"]))
    assert failed.state
    assert failed.state.name == "Failed"
    assert "train failed: the loss of update" in (failed.state.message or "")
    assert len(prefect.children("train")) == trained + 1, "the same would diverge again"
    words = ["--param", f"run={workers}", "--param", "from_stage=shard", "--param", "until=shard"]
    prefect.call("deployment", "run", "reproduce/demo", *words, "--watch")
    # Prefect repeats an event that a busy SQLite could not count at once: one outcome has one id.
    prefect.until(lambda: len({post["id"] for post in listener.posts}) == 2, "both outcomes are notified")
    wrong, well = {post["id"]: post for post in listener.posts}.values()
    assert wrong["type"] == "prefect.flow-run.Failed"
    assert "train failed: the loss of update" in wrong["text"]
    assert wrong["data"]["parameters"]["overrides"] == ["training.factor=1e30"]
    assert well["type"] == "prefect.flow-run.Completed"
    assert well["data"]["message"] == "small: no version registered"
    assert f"{failed.id}" in wrong["source"]
    prefect.repro("deploy", "demo", "--notify", "none")
    assert deployed(prefect)["automations"] == before["automations"][:1]


def test_a_duplicate_run_is_skipped_and_cancelling_a_run_cancels_its_remote_stage(
    prefect: PrefectEnvironment, workers: str, tmp_path: Path
) -> None:
    parameters = {"run": workers, "overrides": ["training.updates=100000", "training.checkpoint_every=20"]}
    before = len(prefect.children("train"))
    first = prefect.begin("reproduce/demo", **parameters)
    prefect.until(lambda: len(prefect.children("train")) > before, "training is dispatched")
    prefect.until(lambda: bool(checkpoints(tmp_path)), "a checkpoint is written")
    second = prefect.ended(prefect.begin("reproduce/demo", **parameters))
    assert second.state
    assert second.state.name == "Skipped"
    assert f"{first.id}" in (second.state.message or "")
    prefect.cancel(first)
    assert prefect.ended(first).state.name == "Cancelled"  # type: ignore[union-attr]
    child = prefect.ended(prefect.children("train")[-1])
    assert child.state
    assert child.state.name == "Cancelled"
    prefect.until(lambda: not trainings(tmp_path), "the training's processes end")
    assert checkpoints(tmp_path), "the next run resumes from them"


def test_another_worker_resumes_the_training_of_a_lost_one(
    prefect: PrefectEnvironment, workers: str, s3: Server, tmp_path: Path
) -> None:
    def is_kept() -> bool:
        listed = s3.client.list_objects_v2(Bucket=s3.bucket, Prefix="prefix/train/").get("Contents", ())
        return any(each["Key"].endswith("/index.json") for each in listed)

    overrides = ["training.updates=3000", "training.checkpoint_every=50", "training.dev_every=3000"]
    before = len(prefect.children("train"))
    run = prefect.begin("reproduce/demo", run=workers, overrides=overrides, until="train")
    prefect.until(is_kept, "a checkpoint is in the bucket")
    lost = prefect.processes.pop()
    everything = [psutil.Process(lost.pid), *psutil.Process(lost.pid).children(recursive=True)]
    for process in everything:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    lost.wait()
    shutil.rmtree(tmp_path / "gpu")
    variables = {name: prefect.variables[name] for name in ("REPRO_ROOT", "MLFLOW_TRACKING_URI")}
    prefect.worker("gpu", **variables, REPRO_CACHE=str(tmp_path / "other"))
    assert prefect.ended(run).state.name == "Completed"  # type: ignore[union-attr]
    first, second = prefect.children("train")[before:]
    assert prefect.state(first) == "Crashed"
    assert prefect.state(second) == "Completed"
    assert "resumes from what another machine sent" in (prefect.folder / "gpu-worker.log").read_text()


def checkpoints(folder: Path) -> list[Path]:
    return list((folder / "gpu").glob("*/train/*.partial-resume-*/checkpoints/*"))


def trainings(folder: Path) -> list[psutil.Process]:
    """Processes that train below ``folder``."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            words = " ".join(process.cmdline())
            if "model.train" in words and str(folder) in words and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


class Listener(HTTPServer):
    """Receives notifications on loopback."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), NotificationHandler)
        self.posts: list[dict[str, Any]] = []
        self.address = f"http://127.0.0.1:{self.server_port}"


class NotificationHandler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Listener)
        assert self.path == "/hidden-word"
        self.server.posts.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *words: object) -> None: ...


@pytest.fixture
def listener() -> Iterator[Listener]:
    server = Listener()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()
