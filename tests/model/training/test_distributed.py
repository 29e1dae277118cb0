"""Tests of ranks that die or hang: the group ends soon, and training resumes with any number of ranks.

Trainings that are compared run in float64; see ``small_training.in_float64``.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from patience import limit, wait_for
from small_training import MODEL, TRAINING, assert_same_training, fork, in_float64, rows, run, weights, write_job

from infra.launch.local import LocalLauncher
from infra.site import Site
from infra.store.store import Artifact
from infra.tracking.tracker import Tracker
from tasks.engine.jobs import job_spec
from tasks.engine.stage import JobRequest, StageCall, StageContext, stage_context
from tasks.stages.train import newest_checkpoint, train

EXACT = replace(MODEL, p_drop=0.0)
LONG = replace(TRAINING, updates=400, checkpoint_every=200, dev_every=400, peak=1e-4)
JOB = "train_in_float64"
TIMEOUT_SECONDS = 8
TORCHRUN_SECONDS = 30
"""Time torchrun waits between SIGTERM and SIGKILL; only SIGKILL ends a stopped process."""


@pytest.fixture(autouse=True)
def _job_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2] / "support"))


def ranks_of(out: Path) -> list[psutil.Process]:
    """The training processes of a folder by rank, without torchrun itself."""
    found = []
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
            if str(out / "job.json") in words and "torch.distributed.run" not in words:
                found.append((int(process.environ()["RANK"]), process))
        except (psutil.NoSuchProcess, psutil.AccessDenied, KeyError):
            continue
    return [process for _, process in sorted(found, key=lambda pair: pair[0])]


@contextmanager
def torchrun(job: Path, ranks: int) -> Iterator[subprocess.Popen[bytes]]:
    program = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    with (job.parent / "job.log").open("ab") as log:
        process = subprocess.Popen(
            [*program, "--max-restarts=0", "-m", JOB, str(job)],
            cwd=Path(__file__).resolve().parents[3],
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            stdout=log,
            stderr=log,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_training_resumes_with_more_and_fewer_ranks_after_kills_and_after_sigterm(tmp_path: Path) -> None:
    one = write_job(tmp_path, name="one", model=EXACT, training=LONG)
    run(one, in_float64)
    job = write_job(tmp_path, name="changing", model=EXACT, training=LONG, resume_seconds=0.0)
    alone = fork(job, in_float64)
    wait_for(lambda: newest_checkpoint(job.parent) >= 5)
    os.kill(alone, signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(alone, 0)[1]) == -signal.SIGKILL

    further = newest_checkpoint(job.parent) + 5
    with torchrun(job, 2) as process:
        wait_for(lambda: newest_checkpoint(job.parent) >= further)
        group = ranks_of(job.parent)
        assert len(group) == 2
        group[1].send_signal(signal.SIGKILL)
        process.wait(limit(15.0))  # the other waits for no dead rank
    assert ranks_of(job.parent) == []
    killed = newest_checkpoint(job.parent)
    assert further <= killed < LONG.updates

    (job.parent / "exit.json").unlink(missing_ok=True)
    write_job(tmp_path, name="changing", model=EXACT, training=LONG)  # saves for resuming only when it is asked to end
    with torchrun(job, 3) as process:
        wait_for(lambda: rows(job)[-1]["done"] >= killed + 5)
        process.terminate()
        assert process.wait(limit(15.0)) != 0
    answer = json.loads((job.parent / "exit.json").read_text())
    assert answer["reason"] == "preempted"
    saved = newest_checkpoint(job.parent)
    assert saved > killed
    assert f"update {saved} of 400 is saved" in answer["message"]

    assert run(job, in_float64)["reason"] == "done"
    assert [row["done"] for row in rows(job) if "loss" in row].count(1) == 1, "restarted from the first update"
    assert_same_training(one, job)


class TrainStage:
    """The stage ``train`` on the files of the small training, with the local launcher."""

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
        """Run the stage to its end and call ``during`` periodically while a job runs."""

        def run(job: JobRequest) -> None:
            self.jobs += 1
            spec = job_spec(self.site, replace(job, module=JOB))
            LocalLauncher().run(spec, during)

        call = StageCall(train, "", {})
        around = StageContext(self.site, call, run, lambda *_: None, Tracker("", self.site.root), "")
        with stage_context(around):
            train.body(self.out, *self.inputs, EXACT, LONG)


@pytest.mark.slow
def test_a_stuck_rank_is_detected_and_the_stage_resumes(tmp_path: Path) -> None:
    write_job(tmp_path)
    quiet, stuck = TrainStage(tmp_path, tmp_path / "quiet", 2), TrainStage(tmp_path, tmp_path / "stuck", 2)
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
    assert TIMEOUT_SECONDS - 1 < ended[0] < soon, "the time-out detects and ends it"
    assert ranks_of(stuck.out) == []
    assert weights(stuck.job) == weights(quiet.job)
