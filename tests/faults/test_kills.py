"""SIGKILL of any process: `--close` closes what is left, and the resumed run gives what an undisturbed run gives."""

import os
import shlex
import signal
import subprocess
from pathlib import Path

import psutil
import pytest
from services import (
    Services,
    assert_metrics_logged_once,
    has_checkpoint,
    kill_tree,
    newest_checkpoint,
    stage_states,
    wait_for,
    wait_for_outcome,
)
from small_pipeline import processes

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("nothing_left")]
UNTIL = ("--until", "average")


def test_torchrun_and_ranks_are_killed_repeatedly(services: Services, root: Path, two_ranks: Path) -> None:
    """Each kill ends the group of two ranks, and the same run relaunches it, more often than a stage is retried.

    A relaunch is free while each attempt leaves a newer checkpoint.
    """
    run = services.run(root, "LONG", *UNTIL, REPRO_RANKS="2")
    newest = 0
    for updates, victim in ((80, "torchrun"), (200, "rank"), (320, "rank"), (440, "rank"), (560, "rank")):
        least = max(updates, newest + 1)
        wait_for(lambda least=least: has_checkpoint(root, least))
        newest = newest_checkpoint(root)
        wait_for(lambda victim=victim: victims(root, victim))[-1].send_signal(signal.SIGKILL)
    assert stage_states(wait_for_outcome(run))["train"] == {"completed"}


def victims(root: Path, kind: str) -> list[psutil.Process]:
    """Processes of a training: the launcher for ``torchrun``, else the ranks."""
    launchers = [each.pid for each in processes(root, "torch.distributed.run")]
    return [each for each in processes(root, "model.train") if (each.pid in launchers) == (kind == "torchrun")]


def flow_process(root: Path) -> psutil.Process:
    """The process in which a worker runs a flow: the one above the training."""
    (torchrun,) = processes(root, "torch.distributed.run")
    found = torchrun.parent()
    assert found
    return found


@pytest.mark.usefixtures("worker")
def test_the_flow_process_of_a_worker_is_killed(services: Services, root: Path) -> None:
    flow_run = services.submit(services.deployment(), root, run=f"{services.runs}:LONG", until="average")
    wait_for(lambda: has_checkpoint(root))
    flow_process(root).kill()
    wait_for(lambda: services.flow_run(flow_run)["state_type"] == "CRASHED")
    wait_for(lambda: not services.running())
    services.cli("flow-run", "retry", flow_run)
    wait_for(lambda: services.flow_run(flow_run)["state_type"] in ("COMPLETED", "FAILED"))
    assert services.flow_run(flow_run)["state_type"] == "COMPLETED"
    ended = [(each["name"], each["state_name"]) for each in services.task_runs(flow_run)]
    assert [state for name, state in ended if name == "train"] == ["Crashed", "Completed"]
    assert {state for name, state in ended if name != "train"} <= {"Completed", "Cached"}


def test_the_worker_is_killed(services: Services, root: Path, worker: subprocess.Popen[bytes]) -> None:
    """Its flow finishes or ends with it; in either case the next run completes."""
    services.submit(services.deployment(), root, run=f"{services.runs}:LONG", until="average")
    wait_for(lambda: has_checkpoint(root))
    flow = flow_process(root)
    worker.kill()
    worker.wait()
    services.worker()
    wait_for(lambda: not flow.is_running() or flow.status() == psutil.STATUS_ZOMBIE)
    wait_for_outcome(services.run(root, "LONG", *UNTIL))


def test_all_processes_of_the_machine_are_killed(
    services: Services, root: Path, worker: subprocess.Popen[bytes]
) -> None:
    """Worker, flow, ranks and both servers at once, then both servers again. `--close` closes nothing that is alive."""
    flow_run = services.submit(services.deployment(), root, run=f"{services.runs}:LONG", until="average")
    wait_for(lambda: has_checkpoint(root))
    assert services.unfinished(root, "--close") == [], "it is running"
    assert services.running().keys() == {"flow runs", "task runs", "in MLflow"}
    for process in processes(root):
        os.kill(process.pid, signal.SIGKILL)
    for each in services.workers:
        kill_tree(each.pid)
        each.wait()
    services.prefect.kill()
    services.mlflow.kill()
    wait_for(lambda: not processes(root))
    services.start()
    (interrupted,) = services.unfinished(root, "--close")
    assert services.running() == {}
    assert services.flow_run(flow_run)["state_name"] == "Crashed"
    wait_for_outcome(services.repro(root, *shlex.split(interrupted["command"])[1:], "--json"))
    assert_metrics_logged_once(services, root)
