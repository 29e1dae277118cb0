"""SIGKILL, of whatever there is: what is left is ended, and going on gives what an undisturbed run gives."""

import os
import shlex
import signal
import subprocess
from pathlib import Path

import psutil
import pytest
from world import World, checkpoint_there, finished, kill_tree, processes, rows_arrived_once, states, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.usefixtures("nothing_left")]
UNTIL = ("--until", "average")


def test_a_sweep_alone_ends_what_is_held_to_be_running(world: World, root: Path) -> None:
    first = world.run(root, "LONG", *UNTIL)
    wait_for(lambda: checkpoint_there(root))
    assert world.running().keys() == {"flow runs", "task runs", "in MLflow"}
    assert world.unfinished(root, "--sweep") == [], "it still runs"
    assert world.running().keys() == {"flow runs", "task runs", "in MLflow"}
    first.kill()
    first.wait()
    assert len(world.unfinished(root, "--sweep")) == 1
    assert world.running() == {}
    finished(world.run(root, "LONG", *UNTIL))


@pytest.mark.parametrize("victim", ["torchrun", "rank"])
def test_torchrun_and_each_rank(world: World, root: Path, two_ranks: Path, victim: str) -> None:
    """Of two ranks; what stays of the group is ended with it, and the same run launches it again."""
    run = world.run(root, "LONG", *UNTIL, REPRO_RANKS="2")
    wait_for(lambda: checkpoint_there(root))
    found = [each for each in processes(root, "model.train") if is_victim(each, victim)]
    assert found
    found[-1].send_signal(signal.SIGKILL)
    assert states(finished(run))["train"] == {"completed"}


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
def test_the_flow_in_a_worker(world: World, root: Path) -> None:
    flow_run = world.submit(world.deployment(), root, run=f"{world.runs}:LONG", until="average")
    wait_for(lambda: checkpoint_there(root))
    flow_process(root).kill()
    wait_for(lambda: world.flow_run(flow_run)["state_type"] == "CRASHED")
    wait_for(lambda: not world.running(), 60)
    world.cli("flow-run", "retry", flow_run)
    wait_for(lambda: world.flow_run(flow_run)["state_type"] in ("COMPLETED", "FAILED"))
    assert world.flow_run(flow_run)["state_type"] == "COMPLETED"
    ended = [(each["name"], each["state_name"]) for each in world.task_runs(flow_run)]
    assert [state for name, state in ended if name == "train"] == ["Crashed", "Completed"]
    assert {state for name, state in ended if name != "train"} <= {"Completed", "Cached"}


def test_the_worker(world: World, root: Path, worker: subprocess.Popen[bytes]) -> None:
    """Its flow goes on, or ends with it; in either case another worker, or the next run, brings it to its end."""
    flow_run = world.submit(world.deployment(), root, run=f"{world.runs}:LONG", until="average")
    wait_for(lambda: checkpoint_there(root))
    flow = flow_process(root)
    worker.kill()
    worker.wait()
    world.worker()
    wait_for(lambda: not flow.is_running() or flow.status() == psutil.STATUS_ZOMBIE)
    print("after the worker's end the flow run is", world.flow_run(flow_run)["state_name"])
    finished(world.run(root, "LONG", *UNTIL))


def test_the_machine(world: World, root: Path, worker: subprocess.Popen[bytes]) -> None:
    """All at once: worker, flow, ranks, both servers; they are started again on what they left."""
    flow_run = world.submit(world.deployment(), root, run=f"{world.runs}:LONG", until="average")
    wait_for(lambda: checkpoint_there(root))
    for process in processes(root):
        os.kill(process.pid, signal.SIGKILL)
    for each in world.workers:
        kill_tree(each.pid)
        each.wait()
    world.prefect.kill()
    world.mlflow.kill()
    wait_for(lambda: not processes(root), 60)
    world.start()
    (told,) = world.unfinished(root, "--sweep")
    assert world.running() == {}
    assert world.flow_run(flow_run)["state_name"] == "Crashed"
    finished(world.repro(root, *shlex.split(told["command"])[1:], "--json"))
    rows_arrived_once(world, root)
