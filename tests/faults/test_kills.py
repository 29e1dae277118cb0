"""SIGKILL, of whatever there is: what is left is ended, and going on gives what an undisturbed run gives."""

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
    processes,
    stage_states,
    wait_for,
    wait_for_outcome,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.usefixtures("nothing_left")]
UNTIL = ("--until", "average")


def test_a_sweep_alone_ends_what_is_held_to_be_running(services: Services, root: Path) -> None:
    first = services.run(root, "LONG", *UNTIL)
    wait_for(lambda: has_checkpoint(root))
    assert services.running().keys() == {"flow runs", "task runs", "in MLflow"}
    assert services.unfinished(root, "--sweep") == [], "it still runs"
    assert services.running().keys() == {"flow runs", "task runs", "in MLflow"}
    first.kill()
    first.wait()
    assert len(services.unfinished(root, "--sweep")) == 1
    assert services.running() == {}
    wait_for_outcome(services.run(root, "LONG", *UNTIL))


@pytest.mark.parametrize("victim", ["torchrun", "rank"])
def test_torchrun_and_each_rank(services: Services, root: Path, two_ranks: Path, victim: str) -> None:
    """Of two ranks; what stays of the group is ended with it, and the same run launches it again."""
    run = services.run(root, "LONG", *UNTIL, REPRO_RANKS="2")
    wait_for(lambda: has_checkpoint(root))
    found = [each for each in processes(root, "model.train") if is_victim(each, victim)]
    assert found
    found[-1].send_signal(signal.SIGKILL)
    assert stage_states(wait_for_outcome(run))["train"] == {"completed"}


def is_victim(process: psutil.Process, victim: str) -> bool:
    words = " ".join(process.cmdline())
    return ("torch.distributed.run" in words) == (victim == "torchrun")


def flow_process(root: Path) -> psutil.Process:
    """The process in which a worker runs a flow: the one above the training."""
    (torchrun,) = processes(root, "torch.distributed.run")
    found = torchrun.parent()
    assert found
    return found


@pytest.mark.usefixtures("worker")
def test_the_flow_in_a_worker(services: Services, root: Path) -> None:
    flow_run = services.submit(services.deployment(), root, run=f"{services.runs}:LONG", until="average")
    wait_for(lambda: has_checkpoint(root))
    flow_process(root).kill()
    wait_for(lambda: services.flow_run(flow_run)["state_type"] == "CRASHED")
    wait_for(lambda: not services.running(), 60)
    services.cli("flow-run", "retry", flow_run)
    wait_for(lambda: services.flow_run(flow_run)["state_type"] in ("COMPLETED", "FAILED"))
    assert services.flow_run(flow_run)["state_type"] == "COMPLETED"
    ended = [(each["name"], each["state_name"]) for each in services.task_runs(flow_run)]
    assert [state for name, state in ended if name == "train"] == ["Crashed", "Completed"]
    assert {state for name, state in ended if name != "train"} <= {"Completed", "Cached"}


def test_the_worker(services: Services, root: Path, worker: subprocess.Popen[bytes]) -> None:
    """Its flow goes on, or ends with it; in either case another worker, or the next run, brings it to its end."""
    flow_run = services.submit(services.deployment(), root, run=f"{services.runs}:LONG", until="average")
    wait_for(lambda: has_checkpoint(root))
    flow = flow_process(root)
    worker.kill()
    worker.wait()
    services.worker()
    wait_for(lambda: not flow.is_running() or flow.status() == psutil.STATUS_ZOMBIE)
    print("after the worker's end the flow run is", services.flow_run(flow_run)["state_name"])
    wait_for_outcome(services.run(root, "LONG", *UNTIL))


def test_the_machine(services: Services, root: Path, worker: subprocess.Popen[bytes]) -> None:
    """All at once: worker, flow, ranks, both servers; they are started again on what they left."""
    flow_run = services.submit(services.deployment(), root, run=f"{services.runs}:LONG", until="average")
    wait_for(lambda: has_checkpoint(root))
    for process in processes(root):
        os.kill(process.pid, signal.SIGKILL)
    for each in services.workers:
        kill_tree(each.pid)
        each.wait()
    services.prefect.kill()
    services.mlflow.kill()
    wait_for(lambda: not processes(root), 60)
    services.start()
    (told,) = services.unfinished(root, "--sweep")
    assert services.running() == {}
    assert services.flow_run(flow_run)["state_name"] == "Crashed"
    wait_for_outcome(services.repro(root, *shlex.split(told["command"])[1:], "--json"))
    assert_metrics_logged_once(services, root)
