"""Ranks that die or get stuck: the group ends soon, and training goes on with as many as there are then.

Trainings that are compared run in float64 (``small_training.in_float64`` says why).
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import torch
from small_training import MODEL, TRAINING, assert_same_training, in_float64, rows, run, weights, write_job

from infra.launch.job import JobSpec
from infra.launch.local import LocalLauncher
from infra.site import Site
from infra.store.local import Artifact
from infra.tracking.tracker import Tracker
from model import job as model_job
from model.data.batches import Update
from model.errors import JobError
from model.training.distributed import Ranks
from model.training.metrics import LossSums
from model.training.setup import build_trainer
from model.training.step import TrainingStep
from tasks.engine.stage import StageCall, StageContext, stage_context
from tasks.stages.train import newest_checkpoint, train

EXACT = replace(MODEL, p_drop=0.0)
LONG = replace(TRAINING, updates=400, checkpoint_every=200, dev_every=400, peak=1e-4)
JOB = "train_in_float64"
TIMEOUT_SECONDS = 8
TORCHRUN_SECONDS = 30
"""What torchrun waits between SIGTERM and SIGKILL, which alone ends a stopped process."""


@pytest.fixture(autouse=True)
def _job_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2] / "support"))


def ranks_of(out: Path) -> list[psutil.Process]:
    """The training processes over a folder, by rank; torchrun itself left out."""
    found = []
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
            if str(out / "job.json") in words and "torch.distributed.run" not in words:
                found.append((int(process.environ()["RANK"]), process))
        except (psutil.NoSuchProcess, psutil.AccessDenied, KeyError):
            continue
    return [process for _, process in sorted(found, key=lambda pair: pair[0])]


def wait_for(done: Callable[[], bool], seconds: float) -> float:
    """Seconds until it holds; fails where it does not within ``seconds``."""
    begun = time.monotonic()
    while not done():
        assert time.monotonic() - begun < seconds
        time.sleep(0.02)
    return time.monotonic() - begun


@contextmanager
def torchrun(job: Path, ranks: int) -> Iterator[subprocess.Popen[bytes]]:
    process = agent(job, "--standalone", f"--nproc-per-node={ranks}")
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def agent(job: Path, *words: str) -> subprocess.Popen[bytes]:
    """One torchrun, as there is one on each node."""
    house = Path(__file__).resolve().parents[3]
    program = [sys.executable, "-m", "torch.distributed.run", *words, "--max-restarts=0", "-m", JOB, str(job)]
    with (job.parent / "job.log").open("ab") as log:
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        return subprocess.Popen(program, cwd=house, env=environment, stdout=log, stderr=log)


def test_a_rank_is_killed_and_fewer_or_more_go_on_to_the_same_weights(tmp_path: Path) -> None:
    one = write_job(tmp_path, name="one", model=EXACT, training=LONG)
    run(one, in_float64)
    job = write_job(tmp_path, name="changing", model=EXACT, training=LONG, resume_seconds=0.0)
    for ranks, victim in ((2, 1), (1, 0)):
        further = newest_checkpoint(job.parent) + 20
        with torchrun(job, ranks) as process:
            wait_for(lambda: newest_checkpoint(job.parent) >= further, 100)  # noqa: B023
            group = ranks_of(job.parent)
            assert len(group) == ranks
            group[victim].send_signal(signal.SIGKILL)
            ended = wait_for(lambda: process.poll() is not None, 60)
        assert ended < 15, "the others waited for a dead rank"
        assert ranks_of(job.parent) == []
        assert further <= newest_checkpoint(job.parent) < LONG.updates
    with torchrun(job, 3) as process:
        assert process.wait(120) == 0
    assert json.loads((job.parent / "exit.json").read_text())["reason"] == "done"
    assert [row["done"] for row in rows(job) if "loss" in row].count(1) == 1, "began anew"
    assert_same_training(one, job)


def test_two_nodes_train_as_one_rank_does(tmp_path: Path) -> None:
    training = replace(LONG, updates=40, checkpoint_every=20, dev_every=40)
    one, two = (write_job(tmp_path, name=name, model=EXACT, training=training) for name in ("one", "two"))
    run(one, in_float64)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        meeting = f"127.0.0.1:{free.getsockname()[1]}"
    words = ["--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=c10d", "--rdzv-id=small", f"--rdzv-endpoint={meeting}"]
    agents = [agent(two, *words, "--local-addr=127.0.0.1") for _ in range(2)]
    try:
        assert [process.wait(120) for process in agents] == [0, 0]
    finally:
        for process in agents:
            process.kill()
    assert json.loads((two.parent / "exit.json").read_text())["reason"] == "done"
    assert_same_training(one, two)


def test_ranks_that_are_asked_to_end_say_what_is_saved(tmp_path: Path) -> None:
    whole = write_job(tmp_path, name="whole", model=EXACT, training=LONG)
    run(whole, in_float64)
    job = write_job(tmp_path, name="stopped", model=EXACT, training=LONG)
    with torchrun(job, 2) as process:
        wait_for(lambda: (job.parent / "metrics.jsonl").exists() and len(rows(job)) > 20, 100)
        process.terminate()
        assert process.wait(60) != 0
    answer = json.loads((job.parent / "exit.json").read_text())
    assert answer["reason"] == "preempted"
    saved = newest_checkpoint(job.parent)
    assert f"update {saved} of 400 is saved" in answer["message"]
    with torchrun(job, 2) as process:
        assert process.wait(120) == 0
    assert_same_training(whole, job)


def test_ranks_go_on_from_the_checkpoint_that_the_leading_one_finds(tmp_path: Path) -> None:
    job = write_job(tmp_path, name="apart", model=EXACT, training=replace(LONG, updates=40, checkpoint_every=10))
    assert run(job)["reason"] == "done"

    class Following(Ranks):
        def broadcast(self, here: int) -> int:
            return 10

    follower = Following(rank=1, world_size=1)
    with pytest.raises(JobError, match="00000010"):
        build_trainer(model_job.Job.read(job), follower)


@pytest.mark.parametrize("what", ["rounding", "an update left out"])
def test_the_comparison_sees_what_a_rank_did_not_do_and_no_rounding(tmp_path: Path, what: str) -> None:
    training = replace(LONG, updates=100, checkpoint_every=50)
    whole, other = (write_job(tmp_path, name=name, model=EXACT, training=training) for name in ("whole", "other"))
    run(whole, in_float64)

    def disturb() -> None:
        in_float64()
        gradients = TrainingStep.compute_gradients
        noise = torch.Generator().manual_seed(1)

        def disturbed(self: TrainingStep, update: Update) -> LossSums:
            losses = gradients(self, update)
            for parameter in self.model.parameters():
                assert parameter.grad is not None
                if what == "rounding":
                    most = 64 * torch.finfo(parameter.dtype).eps * parameter.grad.abs().max()
                    parameter.grad += most * torch.randn(parameter.shape, generator=noise)
                elif self.update == 61:
                    parameter.grad = None
            return losses

        TrainingStep.compute_gradients = disturbed  # type: ignore[method-assign]

    assert run(other, disturb)["reason"] == "done"
    with nullcontext() if what == "rounding" else pytest.raises(AssertionError, match="00000100"):
        assert_same_training(whole, other)


class Staged:
    """The stage ``train`` over the small training's files, by the launcher of this machine."""

    def __init__(self, root: Path, out: Path, ranks: int) -> None:
        self.out, self.job, self.jobs = out, out / "job.json", 0
        out.mkdir(exist_ok=True)
        self.inputs = [Artifact("shard", name, root / name) for name in ("shards", "dev", "vocabulary")]
        self.site = Site(
            root=root,
            ranks=ranks,
            threads=1,
            device="cpu",
            resume_seconds=0,
            log_seconds=0,
            rank_timeout_seconds=TIMEOUT_SECONDS,
        )

    def train(self, during: Callable[[], None]) -> None:
        """Run it to its end; ``during`` is called now and then while a job runs."""

        def launch(job: JobSpec) -> None:
            self.jobs += 1
            LocalLauncher().run(replace(job, module=JOB), during)

        call = StageCall(train, "", {})
        around = StageContext(self.site, call, launch, lambda *_: None, Tracker("", self.site.root), "")
        with stage_context(around):
            train.body(self.out, *self.inputs, EXACT, LONG)


@pytest.mark.slow
def test_a_stuck_rank_is_noticed_and_the_stage_goes_on_without_it(tmp_path: Path) -> None:
    write_job(tmp_path)
    quiet, stuck = Staged(tmp_path, tmp_path / "quiet", 2), Staged(tmp_path, tmp_path / "stuck", 2)
    quiet.train(lambda: None)
    stopped: list[tuple[psutil.Process, float]] = []
    ended: list[float] = []

    def stop_one() -> None:
        if not stopped and newest_checkpoint(stuck.out) >= 20:
            victim = ranks_of(stuck.out)[1]
            victim.suspend()
            stopped.append((victim, time.monotonic()))
        if stopped and not ended and not stopped[0][0].is_running():
            ended.append(time.monotonic() - stopped[0][1])

    stuck.train(stop_one)
    assert stuck.jobs == 2
    soon = TIMEOUT_SECONDS + TORCHRUN_SECONDS + 10
    assert TIMEOUT_SECONDS - 1 < ended[0] < soon, "noticed by the time-out, not by chance, and ended"
    assert ranks_of(stuck.out) == []
    assert weights(stuck.job) == weights(quiet.job)


def test_a_stage_that_was_interrupted_goes_on_with_other_ranks(tmp_path: Path) -> None:
    write_job(tmp_path)
    whole, changed = Staged(tmp_path, tmp_path / "whole", 1), Staged(tmp_path, tmp_path / "changed", 2)

    def interrupt() -> None:
        if newest_checkpoint(changed.out) >= 20:
            raise KeyboardInterrupt

    whole.train(lambda: None)
    with pytest.raises(KeyboardInterrupt):
        changed.train(interrupt)
    saved = newest_checkpoint(changed.out)
    assert 20 <= saved < LONG.updates
    changed.site = replace(changed.site, ranks=1)
    changed.train(lambda: None)
    assert [row["done"] for row in rows(changed.job) if "loss" in row].count(1) == 1, "began anew"
    assert_same_training(whole.job, changed.job)
