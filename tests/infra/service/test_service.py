"""The service's supervision with fake programs: start, status, kill, restart, stop; no process is left."""

import os
import signal
import stat
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from patience import limit, wait_for
from services import REPOSITORY, REPRO
from stand_ins import ended, free_service, stand_in

from infra.errors import BadConfiguration, JobFailed
from infra.processes.locks import file_lock, is_locked
from infra.servers.environment import configure_libraries
from infra.servers.service_settings import Service, running_service
from infra.service import lifecycle, supervision
from infra.service.process_tags import tagged_pids
from infra.service.supervision import ProgramState, states
from infra.site import Site

PATIENCE = limit(20.0)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose path is longer than a socket's may be."""
    stand_in(tmp_path, monkeypatch)
    root = tmp_path / f"root of 100% {'d' * 120}"
    monkeypatch.setenv("REPRO_ROOT", str(root))
    return root


def by_name(service: Service) -> dict[str, ProgramState]:
    return {state.name: state for state in states(service)}


def all_healthy(service: Service) -> bool:
    found = states(service)
    return bool(found) and all(state.healthy for state in found)


def test_a_service_is_up_until_it_is_down(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    with ended(root):
        service = free_service(root, cpu_workers=1, gpu_workers=2)
        found = lifecycle.up(service, os.environ, said.append)
        assert [state.name for state in found.states] == ["prefect", "mlflow", "cpu-1", "gpu-1", "gpu-2"]
        assert all(state.healthy and state.pid and state.link.startswith("http://") for state in found.states)
        assert all(Path(state.log).is_file() for state in found.states)
        assert {f"{name} is healthy" for name in by_name(found.service)} == set(said)
        assert stat.S_IMODE(found.service.folder.stat().st_mode) == 0o700, "it holds the supervisor's socket"

        # A run in the same root uses the service; the user's environment takes precedence.
        assert Site.named().tracking == service.mlflow
        monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://elsewhere")
        assert Site.named().tracking == "http://elsewhere"
        monkeypatch.setenv("HOME", str(root))
        for name in ("PREFECT_API_URL", "PREFECT_HOME"):
            monkeypatch.setenv(name, "before")  # so that the variable is restored after the test
            monkeypatch.delenv(name)
        configure_libraries(root)
        assert os.environ["PREFECT_API_URL"] == service.prefect
        monkeypatch.setenv("PREFECT_API_URL", "http://elsewhere")
        configure_libraries(root)
        assert os.environ["PREFECT_API_URL"] == "http://elsewhere"

        # A second start finds the running service, even with other ports.
        again = lifecycle.up(free_service(root), os.environ, said.append)
        assert again.service == found.service
        assert again.supervisor is None
        assert [state.pid for state in again.states] == [state.pid for state in found.states]

        # A start that was killed before all programs were healthy has written no supervisor: the next start does.
        replace(found.service, supervisor="").write()
        assert running_service(root) is None
        lifecycle.up(free_service(root), os.environ, said.append)
        assert running_service(root) == found.service
        with monkeypatch.context() as patch:
            patch.setattr(os, "geteuid", lambda: -1)
            assert running_service(root) is None, "that of another user"

        # Another root on the same ports is refused.
        with pytest.raises(BadConfiguration, match=f"port {service.prefect_port} .* is not free .*--prefect-port"):
            lifecycle.up(Service(root / "other", "", *_ports(service)), os.environ, said.append)

        began = time.monotonic()
        assert lifecycle.down(service.folder, said.append)
        assert time.monotonic() - began < PATIENCE
        assert not tagged_pids(service.folder)
        assert states(found.service) == []
        assert running_service(root) is None
        assert not lifecycle.down(service.folder, said.append)


def _ports(service: Service) -> tuple[str, int, int]:
    return service.host, service.prefect_port, service.mlflow_port


def test_a_killed_program_restarts_and_all_end_after_their_supervisor_is_killed(root: Path) -> None:
    with ended(root):
        service = lifecycle.up(free_service(root), os.environ, print).service
        before = by_name(service)
        real = tagged_pids(service.folder, "mlflow") - {before["mlflow"].pid}
        assert len(real) == 2, "the server and its child"
        for pid in real:  # only the server; its own child would survive
            if b"mlflow" in command_line(pid):
                os.kill(pid, signal.SIGKILL)
        os.kill(before["cpu-1"].pid, signal.SIGKILL)  # the process between supervisor and worker
        wait_for(
            lambda: (
                {s.name for s in states(service) if s.healthy and s.pid != before[s.name].pid} == {"mlflow", "cpu-1"}
            )
        )
        wait_for(lambda: all_healthy(service))
        assert by_name(service)["prefect"] == before["prefect"]
        assert not real & tagged_pids(service.folder)
        assert len(tagged_pids(service.folder, "cpu-1")) == 2

        os.kill(supervision.supervisor_of(service), signal.SIGKILL)
        wait_for(lambda: running_service(root) is None)  # stale from then on
        assert Site.named().tracking.startswith("sqlite:")
        wait_for(lambda: not tagged_pids(service.folder))


def command_line(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def test_a_stuck_supervisor_is_reported_and_can_be_ended(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ended(root):
        service = lifecycle.up(free_service(root, cpu_workers=0), os.environ, print).service
        os.kill(supervision.supervisor_of(service), signal.SIGSTOP)
        monkeypatch.setattr(supervision, "STUCK_SECONDS", 0.2)
        for call in (lambda: lifecycle.running(service.folder), lambda: lifecycle.up(service, os.environ, print)):
            with pytest.raises(JobFailed, match="does not answer within 0 s; `repro down` ends it"):
                call()
        assert lifecycle.down(service.folder, print)
        assert not tagged_pids(service.folder)


def test_it_waits_for_runs_that_create_its_tables(root: Path) -> None:
    """A run without a service starts Prefect's server and MLflow's tables itself, perhaps at this moment."""
    service = free_service(root)
    said: list[str] = []
    locks = root / "prefect/start.lock", root / "mlflow.db.lock"
    with ended(root), ThreadPoolExecutor(1) as pool:
        with file_lock(locks[1], print, " (MLflow)"):
            with file_lock(locks[0], print, " (Prefect)"):
                starting = pool.submit(lifecycle.up, service, os.environ, said.append)
                wait_for(lambda: any("(Prefect)" in line and "waiting" in line for line in said))
            wait_for(lambda: any("(MLflow)" in line and "waiting" in line for line in said))
            assert not tagged_pids(service.folder)
        assert all(state.healthy for state in starting.result(PATIENCE).states)
        assert not any(map(is_locked, locks))


@pytest.mark.slow
def test_a_start_ends_processes_of_a_killed_service(root: Path) -> None:
    with ended(root):
        service = lifecycle.up(free_service(root), os.environ, print).service
        stopped = tagged_pids(service.folder)
        for pid in stopped:  # a stopped process reacts only to SIGKILL
            os.kill(pid, signal.SIGSTOP)
        supervisor = next(pid for pid in stopped if b"supervisord" in command_line(pid))
        os.kill(supervisor, signal.SIGKILL)
        said: list[str] = []
        now = lifecycle.up(service, os.environ, said.append).service
        assert any("processes of a killed service" in line for line in said)
        assert not stopped & tagged_pids(now.folder)


@pytest.mark.slow
def test_a_failing_program_is_named_with_the_end_of_its_log(root: Path) -> None:
    failing = root.parent / "mlflow.fails"
    failing.touch()
    with ended(root):
        with pytest.raises(JobFailed, match=r"mlflow did not come up .*mlflow.log: there is no such thing"):
            lifecycle.up(free_service(root), os.environ, print)
        assert not tagged_pids(root / "service"), "no program of the failed start is left"
        assert not (root / "service" / "service.json").exists(), "the databases are where they were"
        failing.unlink()
        assert lifecycle.up(free_service(root), os.environ, print).states


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGKILL, marks=pytest.mark.slow)])
def test_in_the_foreground_it_ends_with_the_command(root: Path, number: signal.Signals) -> None:
    service = free_service(root)
    ports = ["--prefect-port", f"{service.prefect_port}", "--mlflow-port", f"{service.mlflow_port}"]
    with ended(root):
        words = [*REPRO, "up", "--foreground", "--gpu", "0", *ports]
        process = subprocess.Popen(words, cwd=REPOSITORY, stderr=subprocess.DEVNULL)
        wait_for(lambda: running_service(root))
        process.send_signal(number)
        assert process.wait(PATIENCE) == (0 if number == signal.SIGTERM else -number)
        wait_for(lambda: not tagged_pids(root / "service"))
