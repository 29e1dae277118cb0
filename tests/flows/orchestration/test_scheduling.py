"""Deployments on a real Prefect server, carried out by real workers of two pools that share a bucket alone."""

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

from flows.reproduce import STAGES

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]

RUNS = """
from pathlib import Path
from small_pipeline import small_run
SMALL = small_run(Path({mirror!r}))
"""


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrefectEnvironment]:
    """A server with everything deployed, without workers."""
    made = PrefectEnvironment(tmp_path_factory.mktemp("house"))
    try:
        made.repro("deploy")
        yield made
    finally:
        made.end()


def deployed(house: PrefectEnvironment) -> dict[str, Any]:
    """What a person sees of pools and deployments, ids included, without the times at which they were looked after."""
    with house.client() as client:
        names = {"id", "name", "flow_id", "parameters", "tags", "description", "work_pool_name", "entrypoint"}
        found = {
            each.name: each.model_dump(mode="json", include=names | {"parameter_openapi_schema"})
            | {"schedules": [(str(s.id), s.slug, s.active, f"{s.schedule}") for s in each.schedules]}
            for each in client.read_deployments()
        }
        pools = {pool.name: str(pool.id) for pool in client.read_work_pools()}
        return {"deployments": found, "pools": pools, "automations": [str(a.id) for a in client.read_automations()]}


def test_deploying_twice_changes_nothing_and_leaves_schedules_as_they_were_switched(house: PrefectEnvironment) -> None:
    before = deployed(house)
    assert set(before["pools"]) == {"cpu", "gpu"}
    told = house.repro("deploy", "demo", "--activate")
    assert "nightly active" in told
    now = deployed(house)
    ((was, is_),) = zip(
        before["deployments"]["demo"]["schedules"], now["deployments"]["demo"]["schedules"], strict=True
    )
    assert is_ == (was[0], was[1], True, was[3])
    house.repro("deploy")
    assert deployed(house) == now, "a schedule that a person activated stays active"
    house.repro("deploy", "demo", "--pause")
    assert deployed(house) == before
    form = before["deployments"]["demo"]["parameter_openapi_schema"]["properties"]
    assert set(form) == {"run", "from_stage", "until", "force", "overrides", "site"}
    assert all(field["title"] and field["description"] for field in form.values())
    assert "train" in form["from_stage"]["enum"]
    assert "train" in form["force"]["items"]["enum"]
    assert form["site"]["enum"] == ["local", "gpu"]


@pytest.fixture
def workers(house: PrefectEnvironment, s3: Server, tmp_path: Path) -> Iterator[str]:
    """Two workers that share a bucket and MLflow, each with a cache of its own; gives the name of the small run."""
    runs = tmp_path / "my_runs.py"
    runs.write_text(RUNS.format(mirror=str(tmp_path / "mirror")))
    together = {
        "REPRO_ROOT": f"s3://{s3.bucket}/house",
        "REPRO_MIRRORS": str(tmp_path / "mirror"),
        "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db",
    }
    before = len(house.processes)
    house.worker("cpu", **together, REPRO_CACHE=str(tmp_path / "cpu"), REPRO_GPU_POOL="gpu")
    house.worker("gpu", **together, REPRO_CACHE=str(tmp_path / "gpu"))
    yield f"{runs}:SMALL"
    house.end(before)


def test_what_needs_a_gpu_is_made_by_a_worker_of_its_pool_once_for_all_that_wait(
    house: PrefectEnvironment, workers: str, tmp_path: Path
) -> None:
    before = [len(house.children(stage)) for stage in ("train", "translate")]
    both = [house.begin("reproduce/demo", run=workers), house.begin("reproduce/demo", run=workers, until="train")]
    ended = [house.ended(run) for run in both]
    assert [run.state and run.state.name for run in ended] == ["Completed"] * 2, [run.state for run in ended]
    assert ended[0].state
    assert "small/1 · dev: bleu " in (ended[0].state.message or "")
    assert [len(house.children(stage)) for stage in ("train", "translate")] == [before[0] + 1, before[1] + 2]
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


def test_a_fault_over_there_is_the_runs_own_and_both_ends_are_told(
    house: PrefectEnvironment, workers: str, listener: "Listener"
) -> None:
    told = house.repro("deploy", "demo", REPRO_NOTIFY_URL=f"{listener.address}/hidden-word")
    assert "hidden-word" not in told
    before = deployed(house)
    house.repro("deploy", "demo", "--notify", f"{listener.address}/hidden-word")
    assert deployed(house) == before
    assert len(before["automations"]) == 2, "one for runs that fell silent, one that tells of ends"
    trained = len(house.children("train"))
    failed = house.ended(house.begin("reproduce/demo", run=workers, overrides=["training.factor=1e30"]))
    assert failed.state
    assert failed.state.name == "Failed"
    assert "train failed: the loss of update" in (failed.state.message or "")
    assert len(house.children("train")) == trained + 1, "the same would diverge again"
    words = ["--param", f"run={workers}", "--param", "from_stage=shard", "--param", "until=shard"]
    house.call("deployment", "run", "reproduce/demo", *words, "--watch")
    # On a busy SQLite Prefect tells an event again that it could not count at once: one end, one id.
    house.until(lambda: len({post["id"] for post in listener.posts}) == 2, "both ends are told")
    wrong, well = {post["id"]: post for post in listener.posts}.values()
    assert wrong["type"] == "prefect.flow-run.Failed"
    assert "train failed: the loss of update" in wrong["text"]
    assert wrong["data"]["parameters"]["overrides"] == ["training.factor=1e30"]
    assert well["type"] == "prefect.flow-run.Completed"
    assert well["data"]["message"] == "small: no version registered"
    assert f"{failed.id}" in wrong["source"]
    house.repro("deploy", "demo", "--notify", "none")
    assert deployed(house)["automations"] == before["automations"][:1]


def test_the_same_run_is_skipped_while_it_goes_and_a_cancelled_one_ends_what_it_handed_over(
    house: PrefectEnvironment, workers: str, tmp_path: Path
) -> None:
    asked = {"run": workers, "overrides": ["training.updates=100000", "training.checkpoint_every=20"]}
    before = len(house.children("train"))
    first = house.begin("reproduce/demo", **asked)
    house.until(lambda: len(house.children("train")) > before, "training is handed over")
    house.until(lambda: bool(checkpoints(tmp_path)), "a checkpoint is written")
    second = house.ended(house.begin("reproduce/demo", **asked))
    assert second.state
    assert second.state.name == "Skipped"
    assert f"{first.id}" in (second.state.message or "")
    house.cancel(first)
    assert house.ended(first).state.name == "Cancelled"  # type: ignore[union-attr]
    child = house.ended(house.children("train")[-1])
    assert child.state
    assert child.state.name == "Cancelled"
    house.until(lambda: not trainings(tmp_path), "the training's processes end")
    assert checkpoints(tmp_path), "the next run goes on from there"


def test_a_worker_that_is_lost_with_all_it_had_is_replaced_by_another_that_goes_on(
    house: PrefectEnvironment, workers: str, s3: Server, tmp_path: Path
) -> None:
    def is_kept() -> bool:
        listed = s3.client.list_objects_v2(Bucket=s3.bucket, Prefix="house/train/").get("Contents", ())
        return any(each["Key"].endswith("/index.json") for each in listed)

    asked = ["training.updates=3000", "training.checkpoint_every=50", "training.dev_every=3000"]
    before = len(house.children("train"))
    run = house.begin("reproduce/demo", run=workers, overrides=asked, until="train")
    house.until(is_kept, "a checkpoint is in the bucket")
    lost = house.processes.pop()
    everything = [psutil.Process(lost.pid), *psutil.Process(lost.pid).children(recursive=True)]
    for process in everything:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    lost.wait()
    shutil.rmtree(tmp_path / "gpu")
    variables = {name: house.variables[name] for name in ("REPRO_ROOT", "MLFLOW_TRACKING_URI")}
    house.worker("gpu", **variables, REPRO_CACHE=str(tmp_path / "other"))
    assert house.ended(run).state.name == "Completed"  # type: ignore[union-attr]
    first, second = house.children("train")[before:]
    assert house.state(first) == "Crashed"
    assert house.state(second) == "Completed"
    assert "resumes from what another machine sent" in (house.folder / "gpu-worker.log").read_text()


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
    """Somebody who is told, on loopback."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Hearing)
        self.posts: list[dict[str, Any]] = []
        self.address = f"http://127.0.0.1:{self.server_port}"


class Hearing(BaseHTTPRequestHandler):
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
