"""Prefect and MLflow servers, workers and runs as child processes that tests kill, and queries to the servers.

All processes end with the test. A restarted server keeps its port and database. Queries use plain HTTP, so that the
test's own process needs no settings of Prefect or MLflow.
"""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from patience import limit, wait_for
from small_pipeline import write_run_file

from infra.processes.children import die_with_parent
from infra.servers.environment import CLIENT_RETRIES, PERSISTENT_LEASES
from infra.servers.loopback import free_ports

REPOSITORY = Path(__file__).resolve().parents[2]
REPRO = [sys.executable, "-c", "from flows.cli import main; main()"]
TIMEOUT_SECONDS = limit(90.0)
"""Limit for anything that takes seconds on a quiet machine."""
UNFINISHED_STATES = ("RUNNING", "PENDING", "CANCELLING", "SCHEDULED")
FINAL_STATES = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")


def request_json(address: str, body: Any = None, method: str = "") -> Any:
    """The JSON answer of a server. Status 503 is retried, as the servers' own clients do.

    Prefect's server lets a request wait 60 s for its SQLite, so that an answer may take longer than that.
    """
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address, data, {"Content-Type": "application/json"})
    request.method = method or ("GET" if body is None else "POST")
    end = time.monotonic() + TIMEOUT_SECONDS
    while True:
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
                return json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            if error.code != 503 or time.monotonic() > end:
                raise
        time.sleep(0.5)


@dataclass
class Server:
    """A server that can be killed and started again on the same port and database."""

    command: list[str]
    health: str
    environment: Mapping[str, str]
    log: Path
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.begin()
        wait_for(self.answers)

    def begin(self) -> None:
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_parent(),
                env={**os.environ, **self.environment},
            )

    def answers(self) -> bool:
        assert self.process is None or self.process.poll() is None, self.log.read_text()[-2000:]
        try:
            with urllib.request.urlopen(self.health, timeout=5):
                return True
        except OSError:
            return False

    def kill(self) -> None:
        if self.process:
            kill_tree(self.process.pid)
            self.process.wait()
            self.process = None


@dataclass
class Services:
    """One Prefect server, one MLflow server, and workers and runs that use them."""

    folder: Path
    prefect_port: int = field(default_factory=lambda: free_ports(1)[0])
    mlflow_port: int = field(default_factory=lambda: free_ports(1)[0])
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.mirror = self.folder / "mirror"
        self.runs = write_run_file(self.folder / "runs_of_faults.py", self.mirror)
        where = ("--host", "127.0.0.1")
        self.prefect = Server(
            [sys.executable, "-m", "prefect", "server", "start", *where, "--port", f"{self.prefect_port}"],
            f"{self.api}/health",
            {
                **self.shared,
                **PERSISTENT_LEASES,
                "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
                "PREFECT_UI_ENABLED": "0",
            },
            self.folder / "prefect.log",
        )
        store, artifacts = f"sqlite:///{self.folder}/mlflow.db", f"{self.folder}/mlflow-artifacts"
        words = ["--backend-store-uri", store, "--artifacts-destination", artifacts, "--workers", "1"]
        self.mlflow = Server(
            [sys.executable, "-m", "mlflow", "server", *words, *where, "--port", f"{self.mlflow_port}"],
            f"{self.tracking}/health",
            {**self.shared, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
            self.folder / "mlflow.log",
        )

    @property
    def api(self) -> str:
        return f"http://127.0.0.1:{self.prefect_port}/api"

    @property
    def tracking(self) -> str:
        return f"http://127.0.0.1:{self.mlflow_port}"

    @property
    def shared(self) -> dict[str, str]:
        return {
            **CLIENT_RETRIES,
            "PREFECT_HOME": f"{self.folder}/prefect",
            "PREFECT_API_URL": self.api,
            "PREFECT_WORKER_QUERY_SECONDS": "1",
            "MLFLOW_TRACKING_URI": self.tracking,
            "REPRO_MIRRORS": f"{self.mirror}",
            "REPRO_THREADS": "1",
            "OMP_NUM_THREADS": "1",
            "DO_NOT_TRACK": "true",
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "PYTHONPATH": os.pathsep.join((f"{REPOSITORY}", os.environ["PYTHONPATH"])),
        }

    def environment(self, **more: str) -> dict[str, str]:
        """The complete environment of a process, with ``more`` variables."""
        return {**os.environ, **self.shared, **more}

    def start(self) -> None:
        """Start both servers in parallel."""
        self.prefect.begin()
        self.mlflow.begin()
        wait_for(self.prefect.answers)
        wait_for(self.mlflow.answers)

    def end(self) -> None:
        self.end_workers()
        for process in self.started:
            if process.poll() is None:
                kill_tree(process.pid)
            process.wait()
        self.prefect.kill()
        self.mlflow.kill()

    def end_workers(self) -> None:
        while self.workers:
            process = self.workers.pop()
            if process.poll() is None:
                kill_tree(process.pid)
            process.wait()

    def repro(self, root: Path | str, *words: str, **more: str) -> subprocess.Popen[str]:
        """Start ``repro`` in its own process; ``more`` goes into its environment."""
        process = subprocess.Popen(
            [*REPRO, *words],
            env=self.environment(**{"REPRO_ROOT": f"{root}"} | more),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=die_with_parent(),
        )
        self.started.append(process)
        return process

    def run(self, root: Path | str, name: str = "SMALL", *words: str, **more: str) -> subprocess.Popen[str]:
        """Start ``repro run`` of one of the file of runs."""
        return self.repro(root, "run", f"{self.runs}:{name}", "--json", *words, **more)

    def unfinished(self, root: Path, *words: str) -> list[dict[str, str]]:
        """The interrupted runs that ``repro status`` lists."""
        out, _ = self.repro(root, "status", "--json", *words).communicate(timeout=TIMEOUT_SECONDS)
        found: list[dict[str, str]] = json.loads(out)["interrupted"]
        return found

    def worker(self, pool: str = "cpu", **more: str) -> subprocess.Popen[bytes]:
        """Start a process worker of the pool, which it creates; ``more`` reaches the environment of its flow runs."""
        words = ["worker", "start", "--pool", pool, "--type", "process", "--name", f"worker-{len(self.workers)}"]
        with (self.folder / f"{pool}-worker.log").open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "prefect", *words],
                env=self.environment(**more),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_parent(),
            )
        self.workers.append(process)
        wait_for(lambda: self._is_known(pool) and process.poll() is None)
        return process

    def _is_known(self, pool: str) -> bool:
        try:
            return bool(request_json(f"{self.api}/work_pools/{pool}")["base_job_template"])
        except urllib.error.HTTPError:
            return False

    def deployment(self, name: str = "small", **fields: Any) -> str:
        """Create a deployment of the flow ``reproduce`` for the pool ``cpu``; returns its id."""
        flow = request_json(f"{self.api}/flows/", {"name": "reproduce"})["id"]
        pull = [{"prefect.deployments.steps.set_working_directory": {"directory": f"{REPOSITORY}"}}]
        body = {
            "name": name,
            "flow_id": flow,
            "entrypoint": "flows/orchestration/prefect_flows.py:reproduce",
            "pull_steps": pull,
            "work_pool_name": "cpu",
            "enforce_parameter_schema": False,
            **fields,
        }
        return str(request_json(f"{self.api}/deployments/", body)["id"])

    def submit(self, deployment: str, root: Path | None = None, **parameters: Any) -> str:
        """Create a flow run of the deployment, in ``root`` instead of the worker's; returns its id."""
        variables = {"env": {**self.shared, "REPRO_ROOT": f"{root}"}} if root else {}
        body = {"parameters": parameters, "job_variables": variables, "state": {"type": "SCHEDULED"}}
        return str(request_json(f"{self.api}/deployments/{deployment}/create_flow_run", body)["id"])

    def cli(self, *words: str) -> str:
        """Run Prefect's own command line; returns its output."""
        done = subprocess.run(
            [sys.executable, "-m", "prefect", *words],
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def flow_run(self, flow_run: str) -> dict[str, Any]:
        return dict(request_json(f"{self.api}/flow_runs/{flow_run}"))

    def flow_runs(self, *states: str) -> list[dict[str, Any]]:
        chosen = {"state": {"type": {"any_": list(states or (*UNFINISHED_STATES, *FINAL_STATES))}}}
        body = {"flow_runs": chosen, "sort": "EXPECTED_START_TIME_DESC"}
        return list(request_json(f"{self.api}/flow_runs/filter", body))

    def task_runs(self, flow_run: str = "", *states: str) -> list[dict[str, Any]]:
        """Task runs of a flow run ("" means all) in these states (none means any); those of a retry come last."""
        body: dict[str, Any] = {"sort": "EXPECTED_START_TIME_ASC"}
        if states:
            body["task_runs"] = {"state": {"type": {"any_": list(states)}}}
        if flow_run:
            body["flow_runs"] = {"id": {"any_": [flow_run]}}
        return list(request_json(f"{self.api}/task_runs/filter", body))

    def mlflow_runs(self, which: str = "") -> list[dict[str, Any]]:
        base, runs, page = f"{self.tracking}/api/2.0/mlflow", [], ""
        found = request_json(f"{base}/experiments/search", {"max_results": 100}).get("experiments", [])
        experiments = [each["experiment_id"] for each in found]
        while True:
            body = {"experiment_ids": experiments, "filter": which, "page_token": page or None, "max_results": 1000}
            answer = request_json(f"{base}/runs/search", body)
            runs += answer.get("runs", [])
            if not (page := answer.get("next_page_token", "")):
                return runs

    def history(self, run_id: str, metric: str) -> list[tuple[int, float]]:
        """All steps and values of a metric, sorted by step."""
        base, rows, page = f"{self.tracking}/api/2.0/mlflow/metrics/get-history", [], ""
        while True:
            address = f"{base}?run_id={run_id}&metric_key={metric}&max_results=1000"
            answer = request_json(f"{address}&page_token={page}" if page else address)
            rows += [(int(each["step"]), float(each["value"])) for each in answer.get("metrics", [])]
            if not (page := answer.get("next_page_token", "")):
                return sorted(rows)

    def running(self) -> dict[str, list[str]]:
        """Everything that Prefect or MLflow shows as unfinished."""
        found = {
            "flow runs": [f"{each['name']} {each['state_name']}" for each in self.flow_runs(*UNFINISHED_STATES)],
            "task runs": [f"{each['name']} {each['state_name']}" for each in self.task_runs("", *UNFINISHED_STATES)],
            "in MLflow": [each["info"]["run_name"] for each in self.mlflow_runs("attributes.status = 'RUNNING'")],
        }
        return {kind: each for kind, each in found.items() if each}


def wait_for_outcome(process: subprocess.Popen[str], seconds: float = 2 * TIMEOUT_SECONDS) -> dict[str, Any]:
    """The JSON outcome of a run, which must succeed; ``said`` is its stderr."""
    out, said = process.communicate(timeout=seconds)
    assert process.returncode == 0, said
    outcome: dict[str, Any] = json.loads(out.splitlines()[-1])
    outcome["said"] = said
    return outcome


def stage_states(outcome: Mapping[str, Any]) -> dict[str, set[str]]:
    """The states of a run's stages by name."""
    found: dict[str, set[str]] = {}
    for row in outcome["stages"]:
        found.setdefault(row["stage"], set()).add(row["state"])
    return found


def artifact_digests(root: Path, but: Sequence[str] = ("register", "report")) -> dict[str, str]:
    """Content digests of all sealed artifacts except those that hold times or versions."""
    found = {}
    for manifest in root.glob("*/*/manifest.json"):
        description = json.loads(manifest.read_text()).get("manifest", {})
        if description.get("stage", but[0]) not in but and "." not in manifest.parent.name:
            found[f"{description['stage']}/{description['key']}"] = description["content"]
    return found


def kill_tree(pid: int) -> None:
    try:
        process = psutil.Process(pid)
        below = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for each in below:
        try:
            os.kill(each.pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def has_checkpoint(root: Path, updates: int = 80) -> bool:
    """Whether an unfinished training under ``root`` has a checkpoint of at least ``updates`` updates."""
    return newest_checkpoint(root) >= updates


def newest_checkpoint(root: Path) -> int:
    """The updates of the newest checkpoint of the unfinished trainings under ``root``; 0 if there is none."""
    found = root.glob("train/*.partial-*/checkpoints/0*")
    return max((int(path.name) for path in found if path.name.isdigit()), default=0)


def assert_metrics_logged_once(services: Services, root: Path) -> None:
    """Assert that MLflow has each metric row of the finished training exactly once, in one run.

    A slow machine may write other rows after a resume than before; MLflow keeps the first up to the newest step.
    """
    (folder,) = [path.parent for path in root.glob("train/*/manifest.json") if "." not in path.parent.name]
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines() if line.endswith("}")]
    (run,) = services.mlflow_runs(f"tags.stage_key = '{folder.name}' and tags.place LIKE '%{root}/%'")
    assert run["info"]["status"] == "FINISHED"
    for metric in ("loss", "gradient_norm", "tokens_per_second"):
        steps: list[int] = []
        for row in rows:
            if metric in row and (not steps or row["done"] > steps[-1]):
                steps.append(row["done"])
        assert [step for step, _ in services.history(run["info"]["run_id"], metric)] == steps, metric
