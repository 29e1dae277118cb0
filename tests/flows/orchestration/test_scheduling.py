"""Deployments on a real Prefect server, executed by real workers that share only a bucket."""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from s3_server import Server
from services import FINAL_STATES, TIMEOUT_SECONDS, Services, kill_tree, request_json, wait_for
from small_pipeline import write_run_file

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def prefect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    """A Prefect server with everything deployed, without workers and without MLflow."""
    made = Services(tmp_path_factory.mktemp("prefect"))
    try:
        made.prefect.start()
        deploy(made)
        yield made
    finally:
        made.end()


def deploy(prefect: Services, *words: str, **variables: str) -> str:
    """Run ``repro deploy``, which must succeed; returns its stderr."""
    process = prefect.repro(prefect.folder / "root", "deploy", *words, **variables)
    _, said = process.communicate(timeout=TIMEOUT_SECONDS)
    assert process.returncode == 0, said
    return said


def deployed(prefect: Services) -> dict[str, Any]:
    """Pools, deployments and automations with their ids, without times of polling."""
    names = ("id", "flow_id", "parameters", "tags", "description", "work_pool_name", "entrypoint")
    found = {}
    for each in request_json(f"{prefect.api}/deployments/filter", {}):
        schedules = [(s["id"], s["slug"], s["active"], s["schedule"]) for s in each["schedules"]]
        form = each["parameter_openapi_schema"]
        found[each["name"]] = {"schedules": schedules, "form": form} | {name: each[name] for name in names}
    pools = {pool["name"]: pool["id"] for pool in request_json(f"{prefect.api}/work_pools/filter", {})}
    automations = [each["id"] for each in request_json(f"{prefect.api}/automations/filter", {})]
    return {"deployments": found, "pools": pools, "automations": automations}


def begin(prefect: Services, **parameters: Any) -> str:
    """Create a flow run of the deployment demo; returns its id."""
    deployment = request_json(f"{prefect.api}/deployments/name/reproduce/demo")["id"]
    return prefect.submit(deployment, **parameters)


def ended(prefect: Services, run: str) -> dict[str, Any]:
    """Wait until the flow run has ended; returns its state."""

    def final_state() -> dict[str, Any] | None:
        state: dict[str, Any] = prefect.flow_run(run)["state"]
        return state if state["type"] in FINAL_STATES else None

    return dict(wait_for(final_state))


def test_deploying_twice_changes_nothing_and_keeps_schedules_active_or_paused(prefect: Services) -> None:
    before = deployed(prefect)
    assert set(before["pools"]) == {"cpu", "gpu"}
    assert "0 3 * * * active" in deploy(prefect, "demo", "--activate")
    now = deployed(prefect)
    ((was, is_),) = zip(
        before["deployments"]["demo"]["schedules"], now["deployments"]["demo"]["schedules"], strict=True
    )
    assert is_ == (was[0], was[1], True, was[3])
    deploy(prefect)
    assert deployed(prefect) == now, "a schedule that a person activated stays active"
    deploy(prefect, "demo", "--pause")
    assert deployed(prefect) == before
    page = f"{prefect.api}/deployments/{before['deployments']['demo']['id']}"
    request_json(page, {"paused": True}, method="PATCH")
    deploy(prefect)
    assert request_json(page)["paused"], "as in Prefect's page"
    deploy(prefect, "demo", "--activate")
    assert not request_json(page)["paused"]
    deploy(prefect, "demo", "--pause")
    form = before["deployments"]["demo"]["form"]["properties"]
    assert set(form) == {"run", "from_stage", "until", "force", "overrides", "site"}
    assert all(field["title"] and field["description"] for field in form.values())
    assert "train" in form["from_stage"]["enum"]
    assert "train" in form["force"]["items"]["enum"]
    assert form["site"]["enum"] == ["local", "gpu"]


def test_times_of_a_schedule_are_kept_until_others_are_given(prefect: Services) -> None:
    def schedules() -> list[tuple[str, bool]]:
        found = request_json(f"{prefect.api}/deployments/name/reproduce/multi30k-ende")["schedules"]
        return [(each["schedule"]["cron"], each["active"]) for each in found]

    assert schedules() == [("0 4 * * 0", False)]
    assert "0 22 * * 5 active" in deploy(prefect, "multi30k-ende", "--cron", "0 22 * * 5")
    assert schedules() == [("0 22 * * 5", True)]
    deploy(prefect)
    assert schedules() == [("0 22 * * 5", True)]
    deploy(prefect, "multi30k-ende", "--pause")
    deploy(prefect)
    assert schedules() == [("0 22 * * 5", False)]
    deploy(prefect, "multi30k-ende", "--cron", "*/5 * * * *")
    assert schedules() == [("*/5 * * * *", True)]
    # Prefect's own scheduler makes flow runs of it: with SQLAlchemy 2.1 it fails.
    wait_for(lambda: any(each["auto_scheduled"] for each in prefect.flow_runs("SCHEDULED")))
    deploy(prefect, "multi30k-ende", "--pause")


def test_schedules_of_prefects_page_are_kept(prefect: Services) -> None:
    place = f"{prefect.api}/deployments/name/reproduce/demo-distilled"
    deployment = request_json(place)
    (own,) = deployment["schedules"]
    schedules = f"{prefect.api}/deployments/{deployment['id']}/schedules"
    berlin = {"cron": "0 5 * * *", "timezone": "Europe/Berlin"}
    request_json(f"{schedules}/{own['id']}", {"schedule": berlin}, method="PATCH")
    added = {"schedule": {"cron": "15 1 * * *", "timezone": "Europe/Berlin"}, "active": False}
    request_json(schedules, [added])
    for _ in range(2):
        deploy(prefect)
        found = {each["schedule"]["cron"]: each for each in request_json(place)["schedules"]}
        assert set(found) == {"0 5 * * *", "15 1 * * *"}
        assert [each["schedule"]["timezone"] for each in found.values()] == ["Europe/Berlin"] * 2
        assert not any(each["active"] for each in found.values())
    deploy(prefect, "demo-distilled", "--activate")
    active = {each["schedule"]["cron"]: each["active"] for each in request_json(place)["schedules"]}
    assert active == {"0 5 * * *": True, "15 1 * * *": False}


def test_several_runs_and_a_run_of_a_file_are_deployed_and_activated(prefect: Services, tmp_path: Path) -> None:
    said = deploy(prefect, "demo", "multi30k-ende", "--activate")
    assert said.count(" active") == 2, said
    own = tmp_path / "my-run.toml"
    own.write_text('name = "my-run"\nextends = "demo"\n')
    assert "0 2 * * * active" in deploy(prefect, f"{own}", "--activate")
    assert "my-run" in deployed(prefect)["deployments"]
    deploy(prefect, "demo", "multi30k-ende", f"{own}", "--pause")


@pytest.fixture
def worker(prefect: Services, s3: Server, tmp_path: Path) -> Iterator[str]:
    """A worker whose root is a bucket, with a cache of its own; gives the name of the small run."""
    runs = write_run_file(tmp_path / "my_runs.py", tmp_path / "mirror")
    together = {
        "REPRO_ROOT": f"s3://{s3.bucket}/prefix",
        "REPRO_MIRRORS": str(tmp_path / "mirror"),
        "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db",
    }
    prefect.worker("cpu", **together, REPRO_CACHE=str(tmp_path / "cpu"))
    yield f"{runs}:SMALL"
    prefect.end_workers()


def test_a_run_of_a_deployment_says_its_scores_or_why_it_failed(prefect: Services, worker: str) -> None:
    done = ended(prefect, begin(prefect, run=worker))
    assert done["name"] == "Completed", done
    assert "small/1 · dev: bleu " in done["message"]
    state = ended(prefect, begin(prefect, run=worker, overrides=["training.factor=1e30"]))
    assert state["name"] == "Failed"
    assert "train failed: the loss of update" in state["message"]
    words = ["--param", f"run={worker}", "--param", "from_stage=shard", "--param", "until=shard"]
    prefect.cli("deployment", "run", "reproduce/demo", *words, "--watch")


def test_a_duplicate_run_is_skipped_and_cancelling_a_run_ends_its_training(
    prefect: Services, worker: str, tmp_path: Path
) -> None:
    parameters = {"run": worker, "overrides": ["training.updates=100000", "training.checkpoint_every=20"]}
    first = begin(prefect, **parameters)
    wait_for(lambda: bool(checkpoints(tmp_path)))  # a checkpoint is written
    second = ended(prefect, begin(prefect, **parameters))
    assert second["name"] == "Skipped"
    assert first in second["message"]
    # As the UI's button does.
    request_json(f"{prefect.api}/flow_runs/{first}/set_state", {"state": {"type": "CANCELLING"}})
    assert ended(prefect, first)["name"] == "Cancelled"
    wait_for(lambda: not trainings(tmp_path))  # the training's processes end
    assert checkpoints(tmp_path), "the next run resumes from them"


def test_another_worker_resumes_the_training_of_a_lost_one(
    prefect: Services, worker: str, s3: Server, tmp_path: Path
) -> None:
    def is_kept() -> bool:
        listed = s3.client.list_objects_v2(Bucket=s3.bucket, Prefix="prefix/train/").get("Contents", ())
        return any(each["Key"].endswith("/index.json") for each in listed)

    overrides = ["training.updates=3000", "training.checkpoint_every=50", "training.dev_every=3000"]
    parameters = {"run": worker, "overrides": overrides, "until": "train"}
    first = begin(prefect, **parameters)
    wait_for(is_kept)  # a checkpoint is in the bucket
    lost = prefect.workers[-1]
    names = ("REPRO_ROOT", "MLFLOW_TRACKING_URI", "REPRO_MIRRORS")
    variables = {name: psutil.Process(lost.pid).environ()[name] for name in names}
    kill_tree(lost.pid)
    lost.wait()
    shutil.rmtree(tmp_path / "cpu")
    # What the automation does once its heartbeats have stopped for minutes.
    request_json(f"{prefect.api}/flow_runs/{first}/set_state", {"state": {"type": "CRASHED"}, "force": True})
    prefect.worker("cpu", **variables, REPRO_CACHE=str(tmp_path / "other"))
    assert ended(prefect, begin(prefect, **parameters))["name"] == "Completed"
    assert "resumes from what another machine sent" in (prefect.folder / "cpu-worker.log").read_text()


def checkpoints(folder: Path) -> list[Path]:
    return list((folder / "cpu").glob("*/train/*.partial-resume-*/checkpoints/*"))


def trainings(folder: Path) -> list[psutil.Process]:
    """Processes that train below ``folder``."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            words = " ".join(process.cmdline())
            if "model.train" in words and str(folder) in words and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found
