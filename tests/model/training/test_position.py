"""Tests of early stopping: a training stops at the same update with the same best weights, also after a kill."""

import json
import os
import signal
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_training import TRAINING, rows, run_ranks, run_until_killed, write_job
from small_training import run as train

from model import average
from model.average import best_checkpoint
from model.errors import JobError
from model.job import Job
from model.training.checkpoint import Checkpoints
from model.training.position import Position, after_validation, is_finished
from model.training.trainer import Trainer

PATIENT = replace(TRAINING, updates=600, dev_every=20, patience=3, checkpoint_every=60)


def rising_from_100() -> None:
    """Replace the dev perplexity by one that is lowest at update 100, so that training stops at 160.

    Neither update is a multiple of 60, at which checkpoints are written.
    """
    validate = Trainer.validate

    def patched(self: Trainer) -> None:
        perplexity = 5.0 + abs(self.position.update - 100)
        self.validation.check = lambda _: {"dev_perplexity": perplexity}  # type: ignore[method-assign]
        validate(self)

    Trainer.validate = patched  # type: ignore[method-assign]


@given(st.lists(st.sampled_from([3.0, 4.0, 5.0, 6.0, float("inf")]), max_size=12), st.integers(1, 4))
def test_the_best_is_the_first_of_the_lowest_and_patience_counts_from_it(checks: list[float], patience: int) -> None:
    training = replace(TRAINING, updates=1000, patience=patience)
    position = Position()
    for number, perplexity in enumerate(checks, start=1):
        position = after_validation(training, replace(position, update=10 * number), perplexity)
        so_far = checks[:number]
        assert position.dev_perplexity == perplexity
        assert position.best_dev_perplexity == min(so_far)
        assert position.best_update == 10 * (so_far.index(min(so_far)) + 1)
        assert is_finished(training, position) == (10 * number - position.best_update >= 10 * patience)
    without = replace(training, patience=0)
    assert not is_finished(without, after_validation(without, position, 9.0))
    assert is_finished(without, replace(position, update=1000))


def run(job: Path) -> dict[str, Any]:
    return train(job, rising_from_100)


def files_of(job: Path) -> dict[str, bytes]:
    """All files of a training except its logs and the state of the last update."""
    state = ("state.safetensors", "position.json")
    found = (path for path in job.parent.rglob("*") if path.is_file() and path.name not in state)
    files = (path for path in found if path.parent != job.parent)
    return {str(path.relative_to(job.parent)): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A training that patience ended, and its facts."""
    job = write_job(tmp_path_factory.mktemp("patient"), training=PATIENT)
    return job, run(job)["facts"]


def test_patience_ends_a_training_and_the_best_stays(tmp_path: Path, patient: tuple[Path, dict[str, Any]]) -> None:
    job, facts = patient
    checks = {row["done"]: row["dev_perplexity"] for row in rows(job) if "dev_perplexity" in row}
    assert facts["stopped_early"]
    assert facts["updates"] == max(checks) == 160
    assert facts["best_update"] == 100
    assert facts["best_dev_perplexity"] == checks[facts["best_update"]]
    assert facts["dev_perplexity"] == checks[facts["updates"]]
    assert max(row["done"] for row in rows(job) if "loss" in row) == facts["updates"], "the last losses are reported"
    assert sorted(files_of(job)) == [
        "checkpoints/00000120/model.safetensors",
        "checkpoints/00000160/model.safetensors",
        "checkpoints/best.json",
        "checkpoints/best/model.safetensors",
    ]
    whole = write_job(tmp_path, name="to-the-best", training=replace(PATIENT, updates=100))
    assert not run(whole)["facts"]["stopped_early"]
    assert (
        files_of(whole)["checkpoints/00000100/model.safetensors"] == files_of(job)["checkpoints/best/model.safetensors"]
    )
    assert best_checkpoint(whole.parent) == (100, whole.parent / "checkpoints/00000100/model.safetensors")


def test_the_clock_ends_a_training_whose_updates_give_the_same_weights(tmp_path: Path) -> None:
    training = replace(TRAINING, updates=600, checkpoint_every=3, keep=2)
    job = write_job(tmp_path, training=replace(training, minutes=1e-9))
    facts = run(job)["facts"]
    assert (facts["updates"], facts["stopped_early"]) == (6, True), "as soon as it has the checkpoints to keep"
    counted = write_job(tmp_path, name="counted", training=replace(training, updates=6))
    run(counted)
    assert files_of(counted) == files_of(job)
    timed = replace(training, schedule="clock", minutes=1 / 60, updates=9_000)
    clock = write_job(tmp_path, name="clock", training=timed)
    assert run(clock)["facts"]["stopped_early"]
    assert [row["learning_rate"] for row in rows(clock) if "learning_rate" in row][-1] < training.peak / 2
    measured = [row for row in rows(clock) if "seconds_left" in row]
    assert all(row["done"] <= row["total"] < 9_000 for row in measured), "progress is of what the clock allows"
    unhurried = write_job(tmp_path, name="unhurried", training=replace(training, updates=6, minutes=60.0))
    assert not run(unhurried)["facts"]["stopped_early"]


def test_averaging_can_take_the_best_checkpoint(tmp_path: Path, patient: tuple[Path, dict[str, Any]]) -> None:
    job, _ = patient
    for averaging, expected in (
        ({"count": 1, "which": "best"}, (1, 100, 100)),
        ({"count": 2}, (2, 120, 160)),
        ({"count": 1}, (1, 160, 160)),
    ):
        out = tmp_path / "-".join(map(str, averaging.values()))
        out.mkdir()
        facts = average.work(Job({"averaging": averaging}, {"run": job.parent}, out))
        assert (facts["checkpoints"], facts["first_update"], facts["last_update"]) == expected
    best = (tmp_path / "1-best" / "model.safetensors").read_bytes()
    assert best == files_of(job)["checkpoints/best/model.safetensors"]


def test_averaging_the_best_needs_a_training_with_patience(tmp_path: Path) -> None:
    job = write_job(tmp_path)
    assert not {"stopped_early", "best_update"} & run(job)["facts"].keys()
    with pytest.raises(JobError, match=r"best\.json names no best checkpoint"):
        average.work(Job({"averaging": {"count": 1, "which": "best"}}, {"run": job.parent}, tmp_path))


def test_a_training_killed_after_its_last_update_resumes_to_the_same_result(
    tmp_path: Path, patient: tuple[Path, dict[str, Any]]
) -> None:
    whole, facts = patient
    cut = write_job(tmp_path, name="cut", training=PATIENT)

    def die(method: str) -> None:
        rising_from_100()
        setattr(Checkpoints, method, lambda *_: os.kill(os.getpid(), signal.SIGKILL))

    for method in ("write_best", "finish"):
        run_until_killed(cut, partial(die, method))
    clock = {"seconds": 0, "epoch_minutes": 0}
    assert run(cut)["facts"] | clock == facts | clock
    assert files_of(cut) == files_of(whole)
    assert run(cut)["reason"] == "done", "a finished training has nothing to do"
    assert files_of(cut) == files_of(whole)


def test_falling_back_to_an_older_checkpoint_falls_back_to_its_best(
    tmp_path: Path, patient: tuple[Path, dict[str, Any]]
) -> None:
    torn = write_job(tmp_path, name="torn", training=PATIENT)

    def die_at_the_best() -> None:
        rising_from_100()
        save = Checkpoints.save

        def saved(self: Checkpoints, *args: Any) -> None:
            save(self, *args)
            if args[-1].update == 100:
                os.kill(os.getpid(), signal.SIGKILL)

        Checkpoints.save = saved  # type: ignore[method-assign]

    run_until_killed(torn, die_at_the_best)
    os.truncate(torn.parent / "checkpoints/00000100/state.safetensors", 50)
    position = json.loads((torn.parent / "checkpoints/00000060/position.json").read_text())["position"]
    assert (torn.parent / f"checkpoints/{position['best_update']:08d}/model.safetensors").exists()
    assert run(torn)["reason"] == "done"
    assert files_of(torn) == files_of(patient[0])


def test_two_ranks_stop_together(tmp_path: Path) -> None:
    job = write_job(tmp_path, training=replace(PATIENT, peak=1e-2, dev_every=5, dev_bleu=3, patience=2))
    facts = run_ranks(job, 2)["facts"]
    assert facts["stopped_early"]
    assert facts["updates"] == facts["best_update"] + 10
    assert all("dev_bleu" in row for row in rows(job) if "dev_perplexity" in row)
