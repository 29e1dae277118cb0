"""A Prefect server and workers as child processes on loopback, started as a user starts them."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import FlowRun
from prefect.states import Cancelling

from infra.processes.children import die_with_parent, terminate_group
from infra.servers.loopback import free_ports, healthy

REPOSITORY = Path(__file__).resolve().parents[2]
TIMEOUT_SECONDS = 900.0
"""Limit for every wait. A lost worker is noticed after 200 s."""


class PrefectEnvironment:
    """All state lies below ``folder``; each worker has its own sub-folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []
        self.variables: dict[str, str] = {}
        """Those of the newest worker."""
        (port,) = free_ports(1)
        self.api = f"http://127.0.0.1:{port}/api"
        self._start("server", {}, "prefect", "server", "start", "--no-ui", "--port", str(port))
        self.until(lambda: healthy(f"{self.api}/health"), "the server answers")

    def client(self) -> SyncPrefectClient:
        return SyncPrefectClient(self.api)

    def worker(self, pool: str, **variables: str) -> subprocess.Popen[bytes]:
        """A worker of ``pool`` with these variables; they reach its flow runs."""
        self.variables = variables
        words = ["prefect", "worker", "start", "--pool", pool, "--name", f"{pool}-worker"]
        return self._start(f"{pool}-worker", variables, *words)

    def repro(self, *words: str, **variables: str) -> str:
        """Run ``repro``, which must succeed; returns its stderr."""
        command = [sys.executable, "-c", "from flows.cli import main; main()", *words]
        environment = self._environment("cli") | variables
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
        assert done.returncode == 0, done.stderr
        return done.stderr

    def call(self, *words: str) -> str:
        """Run Prefect's own command line, which must succeed; returns its stdout."""
        command = [sys.executable, "-m", "prefect", "--no-prompt", *words]
        environment = self._environment("cli")
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def cancel(self, run: FlowRun) -> None:
        """Cancel the flow run as the UI's button does."""
        with self.client() as client:
            client.set_flow_run_state(run.id, Cancelling())

    def begin(self, deployment: str, **parameters: Any) -> FlowRun:
        with self.client() as client:
            found = client.read_deployment_by_name(deployment)
            return client.create_flow_run_from_deployment(found.id, parameters=parameters)

    def state(self, run: FlowRun) -> str:
        with self.client() as client:
            state = client.read_flow_run(run.id).state
            return state.name if state and state.name else ""

    def ended(self, run: FlowRun) -> FlowRun:
        """Wait until the flow run has ended; returns it."""
        with self.client() as client:

            def over() -> bool:
                state = client.read_flow_run(run.id).state
                return state is not None and state.is_final()

            self.until(over, f"flow run {run.name} ends")
            return client.read_flow_run(run.id)

    def children(self, stage: str) -> list[FlowRun]:
        """Flow runs that ran this stage for other runs, newest last."""
        with self.client() as client:
            found = client.read_flow_runs()
            return sorted((run for run in found if f"stage:{stage}" in run.tags), key=lambda run: str(run.created))

    def until(self, happens: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not happens():
            ended = [process.args for process in self.processes if process.poll() is not None]
            assert not ended, f"{ended} ended, see {self.folder}"
            assert time.monotonic() < deadline, (
                f"after {TIMEOUT_SECONDS:.0f} s it is not so that {what}; see {self.folder}"
            )
            time.sleep(0.2)

    def end(self, first: int = 0) -> None:
        """End what was started, from the ``first`` process on, the newest first."""
        for process in reversed(self.processes[first:]):
            terminate_group(process)
        del self.processes[first:]

    def _start(self, name: str, variables: dict[str, str], *words: str) -> subprocess.Popen[bytes]:
        environment = self._environment(name) | variables
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with_parent(),
                env=environment,
                cwd=self.folder,
            )
        self.processes.append(process)
        return process

    def _environment(self, name: str) -> dict[str, str]:
        home = self.folder / name
        home.mkdir(parents=True, exist_ok=True)
        search = os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "tests"), str(REPOSITORY / "tests" / "support")])
        return os.environ | {
            "PYTHONPATH": search,
            "PREFECT_API_URL": self.api,
            "PREFECT_HOME": str(home),
            "PREFECT_WORKER_QUERY_SECONDS": "1",
            "OMP_NUM_THREADS": "1",
            "REPRO_THREADS": "1",
        }
