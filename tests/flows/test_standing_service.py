"""`repro up` with real servers and a worker, runs of the same root that use them without exports, `repro down`."""

import base64
import json
import os
import re
import signal
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from postgresql import Cluster
from services import REPRO, TIMEOUT_SECONDS, has_checkpoint, wait_for, wait_for_outcome
from small_pipeline import all_gone, write_run_file

from infra.servers.loopback import free_ports
from infra.servers.service_settings import read
from infra.service import lifecycle
from infra.service.process_tags import tagged_pids
from infra.service.supervision import states
from tests.flows.test_cli import repro

REPOSITORY = Path(__file__).resolve().parents[2]
SECRETS = {"auth": "planted-SECRET-for-auth", "database": "planted-SECRET-for-database"}
DEPLOY = """
import sys
from prefect import flow
source = flow.from_source(source=sys.argv[1], entrypoint="flows/orchestration/prefect_flows.py:reproduce")
source.deploy("small", work_pool_name="cpu", print_next_steps=False)
"""
START = """
import json, sys
from prefect.deployments import run_deployment
print(run_deployment("reproduce/small", parameters=json.loads(sys.argv[1]), timeout=float(sys.argv[2])).state.name)
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_run_file(tmp_path / "mine.py", tmp_path / "mirror")
    monkeypatch.setenv("REPRO_ROOT", str(tmp_path / "root"))
    monkeypatch.setenv("REPRO_MIRRORS", str(tmp_path / "mirror"))
    monkeypatch.setenv("REPRO_THREADS", "1")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH", "")])))
    return tmp_path / "root"


@contextmanager
def up(root: Path, *words: str) -> Iterator[Mapping[str, str]]:
    """Start the service and yield its two exports; stop it afterwards and check that no process is left."""
    prefect, mlflow = free_ports(2)
    try:
        ports = ["--prefect-port", str(prefect), "--mlflow-port", str(mlflow)]
        done = repro("up", "--gpu", "0", *ports, *words)
        assert done.returncode == 0, done.stderr
        yield dict(re.findall(r"^export (\w+)=(\S+)$", done.stderr, re.MULTILINE)) | {"said": done.stderr}
        assert repro("down").returncode == 0
        assert all_gone(root)
    finally:
        lifecycle.down(root / "service", print)


def ask(address: str, body: object = None, auth: str = "") -> tuple[int, Any]:
    """Status and JSON, or text, of an answer."""
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/html"}
    if auth:
        headers["Authorization"] = f"Basic {base64.b64encode(auth.encode()).decode()}"
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(address, data, headers), timeout=TIMEOUT_SECONDS) as answer:
            status, text = answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        status, text = error.code, error.read().decode()
    return status, json.loads(text) if text.startswith(("{", "[")) else text


def python(script: str, *words: str, environment: Mapping[str, str]) -> str:
    command = [sys.executable, "-c", script, *words]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, cwd=REPOSITORY
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().splitlines()[-1] if done.stdout.strip() else ""


def command_lines() -> set[str]:
    """The command lines of all processes of this machine."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it is gone by now
            found.add(path.read_text(errors="replace"))
    return found


def parents(mlflow: str, auth: str = "") -> list[str]:
    """States of the pipeline runs that MLflow shows."""
    _, found = ask(f"{mlflow}/api/2.0/mlflow/experiments/get-by-name?experiment_name=small", auth=auth)
    ids = [found["experiment"]["experiment_id"]]
    _, runs = ask(f"{mlflow}/api/2.0/mlflow/runs/search", {"experiment_ids": ids, "max_results": 1000}, auth)
    tags = [{tag["key"] for tag in run["data"].get("tags", [])} for run in runs["runs"]]
    infos = [run["info"] for run in runs["runs"]]
    return [info["status"] for info, keys in zip(infos, tags, strict=True) if "mlflow.parentRunId" not in keys]


def test_up_starts_both_servers_with_their_pages_a_worker_and_schedules(root: Path) -> None:
    with up(root) as at:
        form = json.loads(repro("status", "--json").stdout)
        assert form["healthy"]
        for each in form["programs"]:
            status, page = ask(each["link"])
            assert status == 200
            assert "<html" in page.lower()
        workers = f"{at['PREFECT_API_URL']}/work_pools/cpu/workers/filter"
        (worker,) = wait_for(lambda: ask(workers, {})[1])
        assert worker["status"] == "ONLINE"
        assert "/workers" not in at["said"]
        assert repro("deploy", "demo", "--cron", "30 4 1 * *").returncode == 0
        runs = f"{at['PREFECT_API_URL']}/flow_runs/filter"
        wait_for(lambda: any(each["auto_scheduled"] for each in ask(runs, {})[1]))
        logs = "".join(path.read_text() for path in (root / "service" / "logs").iterdir())
        assert "telemetry" not in logs.lower()


@pytest.mark.slow
def test_runs_before_during_and_after_the_service_share_one_mlflow(root: Path) -> None:
    run = ["run", f"{root.parent / 'mine.py'}:SMALL", "--json"]
    assert repro(*run, "--set", "decoding.beam=1").returncode == 0
    with up(root) as at:
        environment = os.environ | {name: at[name] for name in ("PREFECT_API_URL", "MLFLOW_TRACKING_URI")}
        assert parents(at["MLFLOW_TRACKING_URI"]) == ["FINISHED"]

        # Experiments created by the service store artifacts in the root, so that later runs need no server.
        mlflow = f"{at['MLFLOW_TRACKING_URI']}/api/2.0/mlflow/experiments"
        made = ask(f"{mlflow}/create", {"name": "within"})[1]["experiment_id"]
        place = ask(f"{mlflow}/get?experiment_id={made}")[1]["experiment"]["artifact_location"]
        assert place.startswith((root / "mlflow-artifacts").as_uri())

        done = repro(*run)
        assert done.returncode == 0, done.stderr
        assert f"mlflow:  {at['MLFLOW_TRACKING_URI']}" in done.stderr
        assert json.loads(done.stdout.splitlines()[-1])["model_version"] == "small/2"
        flows = ask(f"{at['PREFECT_API_URL']}/flow_runs/filter", {})[1]
        assert "Completed" in {each["state_name"] for each in flows}
        assert parents(at["MLFLOW_TRACKING_URI"]) == ["FINISHED"] * 2
        assert repro("models").stdout.startswith("small/")

        # The worker finds flows/orchestration/prefect_flows.py, and what runs there uses the same store.
        python(DEPLOY, str(REPOSITORY), environment=environment)
        parameters = {"run": run[1], "until": "clean", "force": ["clean"]}
        assert python(START, json.dumps(parameters), "200", environment=environment) == "Completed"

        # Taken down in the middle of a training.
        before = {path.name for path in (root / "train").iterdir()}
        parameters = {"run": run[1], "until": "train", "overrides": ["training.updates=100000"]}
        python(START, json.dumps(parameters), "0", environment=environment)
        wait_for(lambda: {path.name for path in (root / "train").iterdir()} - before)
        wait_for(lambda: list(root.glob("train/*/metrics.jsonl")))
        assert repro("down").returncode == 0
        assert all_gone(root)
    done = repro(*run, "--force", "score")
    assert done.returncode == 0, done.stderr
    assert "sqlite:///" in done.stderr


@pytest.mark.slow
def test_both_servers_are_killed_while_a_run_trains(root: Path) -> None:
    """The supervisor starts them again; the run ends with its scores and its version, and nothing stays "Running"."""
    with up(root) as at:
        run = [*REPRO, "run", f"{root.parent / 'mine.py'}:LONG", "--json"]
        process = subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        wait_for(lambda: has_checkpoint(root))
        for name in ("prefect", "mlflow"):
            wrapper = next(each.pid for each in states(read(root / "service")) if each.name == name)
            for pid in tagged_pids(root / "service", name) - {wrapper}:
                os.kill(pid, signal.SIGKILL)
        outcome = wait_for_outcome(process)
        assert set(outcome["scores"]) == {"dev", "test"}
        assert outcome["model_version"] == "small/1"
        assert parents(at["MLFLOW_TRACKING_URI"]) == ["FINISHED"]
        flows = ask(f"{at['PREFECT_API_URL']}/flow_runs/filter", {})[1]
        assert [each["state_name"] for each in flows] == ["Completed"]
        assert json.loads(repro("status", "--json").stdout)["healthy"]


@pytest.mark.slow
def test_a_planted_secret_is_nowhere(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On PostgreSQL, open to other machines: both servers ask for the credentials, and no file holds a secret."""
    cluster = Cluster(SECRETS["database"])
    file = tmp_path / "auth"
    file.write_text(f"reader:{SECRETS['auth']}\n")
    file.chmod(0o600)
    monkeypatch.setenv("REPRO_DATABASE_URL", cluster.address("postgres", SECRETS["database"], "paper"))
    words: set[str] = set()
    try:
        refused = repro("up", "--host", "0.0.0.0")
        assert refused.returncode == 2
        assert "REPRO_AUTH" in refused.stderr
        monkeypatch.setenv("REPRO_AUTH_FILE", str(file))
        (root / "prefect").mkdir(parents=True)
        (root / "prefect" / "prefect.db").touch()
        with up(root, "--host", "0.0.0.0") as at:
            assert "created the database paper_prefect" in at["said"]
            auth, prefect, mlflow = f"reader:{SECRETS['auth']}", at["PREFECT_API_URL"], at["MLFLOW_TRACKING_URI"]
            search = f"{mlflow}/api/2.0/mlflow/experiments/search?max_results=5"
            for address, body in ((f"{prefect}/flow_runs/count", {}), (search, None), (mlflow, None)):
                assert ask(address, body)[0] == 401
                assert ask(address, body, "reader:another-password")[0] == 401
                assert ask(address, body, auth)[0] == 200
            done = repro("run", f"{root.parent / 'mine.py'}:SMALL", "--json")
            assert done.returncode == 0, done.stderr
            assert parents(mlflow, auth) == ["FINISHED"]
            environment = os.environ | {"PREFECT_API_URL": prefect, "PREFECT_API_AUTH_STRING": auth}
            python(DEPLOY, str(REPOSITORY), environment=environment)
            parameters = {"run": f"{root.parent / 'mine.py'}:SMALL", "until": "clean", "force": ["clean"]}
            assert python(START, json.dumps(parameters), "200", environment=environment) == "Completed"
            words = command_lines()
            said = at["said"] + done.stderr + done.stdout + repro("status", "--json").stdout
        for secret in SECRETS.values():
            assert secret not in said
            assert not any(secret in word for word in words)
            held = [path for path in root.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]
            assert not held
            # What the servers wrote into their databases.
            data = (cluster.folder / "data" / "base").rglob("*")
            assert not [path for path in data if path.is_file() and secret.encode() in path.read_bytes()]
        assert stat.S_IMODE((root / "service").stat().st_mode) == 0o700
        assert not (root / "mlflow.db").exists(), "nothing went to SQLite"
        assert (root / "prefect" / "prefect.db").stat().st_size == 0
    finally:
        cluster.end()
