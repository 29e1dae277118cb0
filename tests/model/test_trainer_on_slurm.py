"""Tests of trainings on a real SLURM: finished, interrupted, requeued, adopted."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from queued_training import has_started, processes_with, queued_training
from services import wait_for
from slurm_cluster import Cluster
from small_training import TRAINING, rows, run, weights, write_job

from infra.errors import BadConfiguration, Preempted
from infra.launch.batch_queue import QueueLauncher
from infra.launch.job import JobSpec
from infra.launch.slurm import Slurm, SlurmSettings
from tasks.stages.train import newest_checkpoint

pytestmark = pytest.mark.timeout(900)
LONG = replace(TRAINING, updates=2000, checkpoint_every=1000, dev_every=2000)


@pytest.fixture(scope="module")
def _cluster() -> Iterator[Cluster]:
    cluster = Cluster()
    yield cluster
    cluster.end()


@pytest.fixture
def cluster(_cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setenv("SLURM_CONF", f"{_cluster.conf}")
    monkeypatch.setenv("PYTHONPATH", f"{Path(__file__).parents[1] / 'support'}")
    assert _cluster.queued() == [], "an earlier test left a job in the queue"
    return _cluster


def launcher(say: Callable[[str], None] = lambda _: None, **settings: object) -> QueueLauncher:
    return QueueLauncher(Slurm(replace(SlurmSettings(), **settings)), poll_seconds=0.5, lag_seconds=1, say=say)  # type: ignore[arg-type]


def small_job(root: Path, name: str, *, ranks: int = 1, long: bool = False) -> JobSpec:
    return queued_training(root, name, LONG if long else TRAINING, ranks=ranks)


def interrupt_once(job: JobSpec) -> None:
    if has_started(job):
        raise KeyboardInterrupt


def test_two_ranks_train_to_the_end(cluster: Cluster, tmp_path: Path) -> None:
    job = small_job(tmp_path, "two", ranks=2)
    said: list[str] = []
    polls: list[int] = []
    launcher(said.append).run(job, lambda: polls.append(1))
    assert json.loads((job.out / "exit.json").read_text())["reason"] == "done"
    assert newest_checkpoint(job.out) == TRAINING.updates
    assert polls
    number = said[0].rpartition(" ")[2]
    assert cluster.state(number) == "COMPLETED"
    assert (job.out / "job.log").exists()


def test_an_unknown_partition_is_refused_before_anything_runs(cluster: Cluster, tmp_path: Path) -> None:
    with pytest.raises(BadConfiguration, match="invalid partition"):
        launcher(partition="nowhere").run(small_job(tmp_path, "one"), bool)
    assert cluster.queued() == []


@pytest.mark.slow
def test_an_interrupt_leaves_a_checkpoint_and_nothing_running(cluster: Cluster, tmp_path: Path) -> None:
    job = small_job(tmp_path, "stopped", ranks=2, long=True)
    with pytest.raises(KeyboardInterrupt):
        launcher().run(job, lambda: interrupt_once(job))
    assert cluster.queued() == []
    assert processes_with(str(job.path)) == []
    assert 0 < newest_checkpoint(job.out) < LONG.updates
    assert json.loads((job.out / "exit.json").read_text())["reason"] == "preempted"


@pytest.mark.slow
def test_a_requeued_job_resumes_to_the_same_weights(cluster: Cluster, tmp_path: Path) -> None:
    whole = write_job(tmp_path, name="whole", training=LONG)
    run(whole)
    job, said, saved = small_job(tmp_path, "requeued", long=True), list[str](), list[int]()

    def restore() -> None:
        number = said[0].rpartition(" ")[2]
        if not saved and has_started(job):
            cluster.ask("scontrol", "requeue", number)
            wait_for(lambda: cluster.state(number) == "PENDING")
            saved.append(newest_checkpoint(job.out))
            cluster.restart_now(number)

    launcher(said.append).run(job, restore)
    assert 0 < saved[0] < LONG.updates
    updates = [row["done"] for row in rows(job.path) if "loss" in row]
    assert updates.count(1) == 1, "restarted from the first update"
    assert weights(job.path)["00002000"] == weights(whole)["00002000"]


@pytest.mark.slow
def test_a_time_limit_is_a_preemption_with_a_checkpoint(cluster: Cluster, tmp_path: Path) -> None:
    job = small_job(tmp_path, "limited")
    config = {**job.config, "training": {**job.config["training"], "updates": 200_000, "checkpoint_every": 100_000}}
    said, start, shortened = list[str](), time.monotonic(), list[str]()

    def shorten() -> None:
        """Shorten the time limit: the notice is due at once, the end a minute or two later."""
        if not shortened and has_started(job):
            minutes = int((time.monotonic() - start) / 60) + 2
            number = said[0].rpartition(" ")[2]
            shortened.append(cluster.ask("scontrol", "update", f"JobId={number}", f"TimeLimit={minutes}"))

    with pytest.raises(Preempted):
        launcher(said.append, time="60", notice_seconds=300).run(replace(job, config=config), shorten)
    assert 0 < newest_checkpoint(job.out) < 200_000
    assert cluster.queued() == []


@pytest.mark.slow
def test_a_job_whose_launcher_was_killed_is_adopted(cluster: Cluster, tmp_path: Path) -> None:
    job = small_job(tmp_path, "left", long=True)
    starter = f"""
import json, sys
sys.path.insert(0, {str(Path(__file__).parents[1] / "support")!r})
from pathlib import Path
from tests.model.test_trainer_on_slurm import launcher, JobSpec
document = json.loads(sys.argv[1])
inputs = {{name: Path(folder) for name, folder in document["inputs"].items()}}
job = JobSpec("model.train", document["config"], inputs, Path(document["out"]), document["site"], 1, distributed=True)
launcher().run(job, bool)
"""
    root = Path(__file__).resolve().parents[2]
    path = os.pathsep.join([f"{root}", f"{root / 'tests'}", os.environ["PYTHONPATH"]])
    environment = {**os.environ, "PYTHONPATH": path}
    first = subprocess.Popen([sys.executable, "-c", starter, job.text()], env=environment)
    try:
        wait_for(lambda: has_started(job) or first.poll() is not None)
    finally:
        first.send_signal(signal.SIGKILL)
        first.wait()
    left = cluster.queued()
    assert len(left) == 1
    said: list[str] = []
    # PYTHONPATH is part of the submitted script.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", path)
        launcher(said.append).run(job, bool)
    assert said[0] == f"SLURM job {left[0]} is still running from an earlier attempt; continuing with it"
    assert [row["done"] for row in rows(job.path) if "loss" in row].count(1) == 1
    assert newest_checkpoint(job.out) == LONG.updates
