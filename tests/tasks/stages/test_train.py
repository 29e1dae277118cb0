"""The training stage: what it says of a training that it resumes, and of one that the clock ended."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from small_training import MODEL, TRAINING

from infra.errors import JobFailed
from infra.site import Site
from infra.store.store import Artifact
from infra.tracking.tracker import Tracker
from model.config import Training
from tasks.engine.stage import JobRequest, StageCall, StageContext, stage_context
from tasks.stages.train import train


def call_train(
    out: Path, training: Training, job: Callable[[JobRequest], None], said: list[str], failures: list[str]
) -> None:
    call = StageCall(train, "", {})
    silent = Tracker("", out)
    around = StageContext(Site(root=out), call, job, lambda *_: None, silent, "", failures=failures, say=said.append)
    inputs = [Artifact(name, "k", out) for name in ("shards", "dev", "vocabulary")]
    with stage_context(around):
        train.body(out, *inputs, MODEL, training)


def test_it_says_from_which_update_it_resumes(tmp_path: Path) -> None:
    def fails(_: JobRequest) -> None:
        raise JobFailed("no memory")

    said: list[str] = []
    for expected in ([], ["train resumes from update 28"]):
        with pytest.raises(JobFailed):
            call_train(tmp_path, TRAINING, fails, said, [])
        assert said == expected
        (tmp_path / "checkpoints" / "00000028").mkdir(parents=True, exist_ok=True)


def test_it_says_and_records_why_it_resumes(tmp_path: Path) -> None:
    def killed(_: JobRequest) -> None:
        (tmp_path / "checkpoints" / "00000032").mkdir(parents=True, exist_ok=True)
        raise JobFailed("model.train was killed by signal 9")

    said: list[str] = []
    failures: list[str] = []
    with pytest.raises(JobFailed):
        call_train(tmp_path, TRAINING, killed, said, failures)
    assert said == ["model.train was killed by signal 9; train resumes from update 32"]
    assert failures == ["model.train was killed by signal 9"], "the last try's reason is noted by the runner"


LATER = " is 7.5, but it needs training.keep checkpoints"


@pytest.mark.parametrize(("seconds", "by_clock", "reason"), [(450.0, 1, ""), (440.0, 0, ""), (600.0, 1, LATER)])
def test_it_says_that_the_clock_ended_it(tmp_path: Path, seconds: float, by_clock: int, reason: str) -> None:
    def ends_early(job: JobRequest) -> None:
        facts = {"updates": 230, "stopped_early": True, "seconds": seconds}
        (job.out / "exit.json").write_text(json.dumps({"facts": facts}))

    said: list[str] = []
    out = tmp_path / "out"
    out.mkdir()
    call_train(out, replace(TRAINING, updates=326, minutes=7.5), ends_early, said, [])
    expected = (
        f"the clock ended the training: 230 of 326 updates in {seconds / 60:.1f} minutes (training.minutes{reason})"
    )
    assert said == [expected] * by_clock
