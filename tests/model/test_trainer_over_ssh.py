"""Trainings on a machine behind a real sshd: whole, cut off, killed, left and adopted; equal to local ones."""

import filecmp
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from patience import wait_for
from queued_training import has_started, processes_with, queued_training
from small_training import TRAINING, rows, run, weights, write_job
from ssh_server import SshServer

from infra.errors import BadConfiguration, Fault, JobFailed, NetworkFault, NoSpace
from infra.launch.batch_queue import QueueLauncher
from infra.launch.far_machine import FarMachine
from infra.launch.job import JobSpec
from infra.launch.ssh import SshQueue, ssh_launcher
from tasks.stages.train import newest_checkpoint

pytestmark = [pytest.mark.timeout(900), pytest.mark.slow]
LONG = replace(TRAINING, updates=600, checkpoint_every=300, dev_every=600)


@pytest.fixture(scope="module")
def server() -> Iterator[SshServer]:
    found = SshServer()
    yield found
    found.end()


@pytest.fixture
def queue(server: SshServer, tmp_path: Path) -> SshQueue:
    return SshQueue(FarMachine("box", server.options), f"{tmp_path / 'far away'}", sys.executable)


def launcher(queue: SshQueue, say: Callable[[str], None] = lambda _: None) -> QueueLauncher:
    return replace(ssh_launcher(queue), poll_seconds=0.2, say=say)


def small_job(root: Path, name: str, *, ranks: int = 1, long: bool = False) -> JobSpec:
    return queued_training(root, name, LONG if long else TRAINING, ranks=ranks, resume_seconds=0.2)


def far_processes(queue: SshQueue) -> list[psutil.Process]:
    return processes_with(f"{queue.folder}/jobs", "model.train")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, object]:
    """The weights of the long training on this machine, undisturbed."""
    path = write_job(tmp_path_factory.mktemp("local"), name="whole", training=LONG)
    run(path)
    return weights(path)["00000600"]


def test_two_ranks_train_to_the_end_and_leave_nothing_but_the_inputs(queue: SshQueue, tmp_path: Path) -> None:
    job = small_job(tmp_path, "two", ranks=2)
    launcher(queue).run(job, bool)
    assert json.loads((job.out / "exit.json").read_text())["reason"] == "done"
    assert newest_checkpoint(job.out) == TRAINING.updates
    assert [*(Path(queue.folder) / "jobs").iterdir()] == []
    assert len([*(Path(queue.folder) / "inputs").iterdir()]) == 3
    assert not list(job.out.rglob("*.partial"))


def test_a_connection_that_is_cut_in_the_training_changes_nothing(
    server: SshServer, queue: SshQueue, tmp_path: Path, whole: Mapping[str, object]
) -> None:
    job, said, cut = small_job(tmp_path, "cut", long=True), list[str](), list[int]()

    def disturb() -> None:
        if not cut and has_started(job):
            server.stop()
            cut.append(len(far_processes(queue)))

        if cut and len(cut) < 20:
            cut.append(len(far_processes(queue)))
            if len(cut) == 20:
                server.start()

    launcher(queue, said.append).run(job, disturb)
    assert cut[0] > 0, "the job ended with its connection"
    assert [line for line in said if "cannot be reached by ssh" in line]
    assert weights(job.path)["00000600"] == whole
    assert [row["done"] for row in rows(job.path) if "loss" in row].count(1) == 1


def test_an_upload_that_is_cut_goes_on_where_it_was(server: SshServer, queue: SshQueue, tmp_path: Path) -> None:
    job = small_job(tmp_path, "upload")
    large = job.inputs["shards"] / "further"
    large.write_bytes(os.urandom(2**20) * 400)
    far = Path(queue.folder) / "inputs"
    kept: list[int] = []

    def cut() -> None:
        growing = wait_for(lambda: [path for path in far.glob("*/**/.further.*") if path.stat().st_size > 2**26])
        server.cut()
        wait_for(lambda: not growing[0].exists())
        kept.append(next(far.glob("*/.partial/further")).stat().st_size)

    with ThreadPoolExecutor(1) as thread:
        cutting = thread.submit(cut)
        launcher(queue).run(job, bool)
        cutting.result()
    assert kept[0] >= 2**26
    assert filecmp.cmp(next(far.glob("*/further")), large, shallow=False)
    assert newest_checkpoint(job.out) == TRAINING.updates


def test_a_job_killed_there_resumes_to_the_same_weights(
    queue: SshQueue, tmp_path: Path, whole: Mapping[str, object]
) -> None:
    job, killed = small_job(tmp_path, "killed", long=True), list[int]()

    def kill() -> None:
        if not killed and [*Path(queue.folder).glob("jobs/*/checkpoints/*[0-9]")]:
            for process in far_processes(queue):
                process.kill()
            killed.append(1)

    with pytest.raises(JobFailed, match="killed"):
        launcher(queue).run(job, kill)
    assert 0 < newest_checkpoint(job.out) < LONG.updates
    launcher(queue).run(job, bool)
    assert weights(job.path)["00000600"] == whole
    assert [row["done"] for row in rows(job.path) if "loss" in row].count(1) == 1, "restarted from the first update"


def test_an_interrupt_brings_the_checkpoint_and_leaves_nothing_running(queue: SshQueue, tmp_path: Path) -> None:
    job = small_job(tmp_path, "stopped", ranks=2, long=True)
    endless = {**job.config["training"], "updates": 200_000, "checkpoint_every": 100_000}
    job = replace(job, config={**job.config, "training": endless})

    def interrupt() -> None:
        if has_started(job):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        launcher(queue).run(job, interrupt)
    assert far_processes(queue) == []
    assert json.loads((job.out / "exit.json").read_text())["reason"] == "preempted"
    assert newest_checkpoint(job.out) > 0


@pytest.mark.parametrize("until_the_end", [False, True])
def test_a_job_whose_launcher_was_killed_is_adopted(
    queue: SshQueue, tmp_path: Path, whole: Mapping[str, object], *, until_the_end: bool
) -> None:
    """While it runs, or after it has ended: its results are fetched, and it is not begun again."""
    job = small_job(tmp_path, "left", long=True)
    starter = f"""
from tests.model.test_trainer_over_ssh import launcher, FarMachine, SshQueue, JobSpec, Path
launcher({queue!r}).run({job!r}, bool)
""".replace("PosixPath", "Path")
    root = Path(__file__).resolve().parents[2]
    path = os.pathsep.join(f"{root / folder}" for folder in (".", "tests", "tests/support"))
    first = subprocess.Popen([sys.executable, "-c", starter], env={**os.environ, "PYTHONPATH": path})
    try:
        wait_for(lambda: has_started(job) or first.poll() is not None)
    finally:
        first.send_signal(signal.SIGKILL)
        first.wait()
    assert far_processes(queue)
    if until_the_end:
        wait_for(lambda: not far_processes(queue))
        assert newest_checkpoint(job.out) < LONG.updates
    said: list[str] = []
    launcher(queue, said.append).run(job, bool)
    assert ("continuing with it" in said[0]) is not until_the_end
    assert [row["done"] for row in rows(job.path) if "loss" in row].count(1) == 1
    assert weights(job.path)["00000600"] == whole


def test_what_is_wrong_there_is_one_sentence(server: SshServer, queue: SshQueue, tmp_path: Path) -> None:
    def refuses(kind: type[Fault], sentence: str, *options: str, host: str = "box", **fields: str) -> None:
        machine = FarMachine(host, (*server.options, *options))
        with pytest.raises(kind, match=sentence):
            replace(queue, machine=machine, **fields).examine()  # type: ignore[arg-type]

    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S -I "$@"\n')
    python.chmod(0o755)
    (tmp_path / "file").touch()
    refuses(NetworkFault, "nowhere.invalid cannot be reached by ssh: .*resolve", host="nowhere.invalid")
    refuses(NetworkFault, "box cannot be reached by ssh: .*refused", "-p1")
    refuses(BadConfiguration, "`ssh box` must work without a question.*Permission denied", "-oPubkeyAuthentication=no")
    refuses(BadConfiguration, "`ssh box` must work without a question.*Host key", "-oUserKnownHostsFile=/dev/null")
    refuses(BadConfiguration, "box: .*/no/python", python="/no/python")
    refuses(BadConfiguration, "has no package torch, numpy, pyarrow, tokenizers, safetensors", python=f"{python}")
    refuses(BadConfiguration, "box: .*Not a directory", folder=f"{tmp_path / 'file' / 'below'}")


def test_a_full_disk_there_is_one_sentence(queue: SshQueue, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if os.getuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", disk], check=False).returncode:
        pytest.skip("NOT RUN: a small disk needs root to be mounted here")
    try:
        queue.folder = f"{disk / 'jobs'}"
        job = small_job(tmp_path, "full")
        (job.inputs["shards"] / "further").write_bytes(bytes(2**23))
        with pytest.raises(NoSpace, match="no space left on box"):
            launcher(queue).run(job, bool)
        (job.inputs["shards"] / "further").unlink()
        config = {**job.config, "model": {**job.config["model"], "d_ff": 40_000}}
        with pytest.raises(NoSpace, match="no space left on"):
            launcher(queue).run(replace(job, config=config), bool)
    finally:
        subprocess.run(["umount", "-l", disk], check=True)
