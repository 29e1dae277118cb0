"""Tests of updates with gradients that are not finite, and of batches that do not fit into memory."""

import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, cast

import pytest
import torch
from small_training import TRAINING, rows, run, weights, write_job

from model.config.special_pieces import EOS
from model.data.batches import Batch, Update
from model.errors import JobError
from model.job import Job, StopSignal
from model.training import setup
from model.training.distributed import Ranks
from model.training.loss import Objective
from model.training.metrics import LossSums
from model.training.setup import build_trainer
from model.training.step import TrainingStep
from model.training.trainer import Trainer

NEVER = cast(StopSignal, SimpleNamespace(received=False))


def nan_gradients(*updates: int, end_after: int = 0) -> Callable[[], None]:
    """Make the gradients of these updates NaN, and request the end of the training after update ``end_after``."""

    def before() -> None:
        gradients = TrainingStep.compute_gradients

        def spoil(self: TrainingStep, update: Update) -> LossSums:
            losses = gradients(self, update)
            if self.update in updates:
                next(self.model.parameters()).grad[0, 0] = math.nan  # type: ignore[index]
            if self.update == end_after:
                Ranks.any = lambda *_: True  # type: ignore[method-assign]
            return losses

        TrainingStep.compute_gradients = spoil  # type: ignore[method-assign]

    return before


def test_a_skipped_update_changes_no_weight_and_is_counted(tmp_path: Path) -> None:
    training = replace(TRAINING, skip_nonfinite=2, checkpoint_every=1, keep=12)
    job = write_job(tmp_path, training=training)
    assert run(job, nan_gradients(1, 5))["facts"]["skipped"] == 2
    saved = weights(job)
    assert [n for n in range(2, 13) if saved[f"{n:08d}"] == saved[f"{n - 1:08d}"]] == [5]
    assert [row["skipped"] for row in rows(job) if "skipped" in row and "loss" in row][-1] == 2
    assert [row["done"] for row in rows(job) if "loss" in row] == [2, 3, 4, *range(6, 13)]
    assert all(math.isfinite(value) for row in rows(job) if "facts" not in row for value in row.values())


@pytest.mark.parametrize("end_after", [1, 5, 7])
def test_a_resumed_training_skips_the_same_updates(tmp_path: Path, end_after: int) -> None:
    training = replace(TRAINING, skip_nonfinite=2)
    whole, resumed = write_job(tmp_path, name="a", training=training), write_job(tmp_path, name="b", training=training)
    run(whole, nan_gradients(1, 5))
    assert run(resumed, nan_gradients(1, 5, end_after=end_after))["reason"] == "preempted"
    assert run(resumed, nan_gradients(1, 5))["facts"]["skipped"] == 2
    assert weights(resumed) == weights(whole)


@pytest.mark.parametrize(("skip_nonfinite", "updates"), [(0, [6]), (1, [3, 6])])
def test_one_nonfinite_gradient_too_many_ends_as_diverged(
    tmp_path: Path, skip_nonfinite: int, updates: list[int]
) -> None:
    job = write_job(tmp_path, training=replace(TRAINING, skip_nonfinite=skip_nonfinite))
    answer = run(job, nan_gradients(*updates))
    assert answer["reason"] == "diverged"
    expected = "the gradient of update 6 is not finite, at learning rate 0.003; the last checkpoint is of update 4"
    assert answer["message"] == expected


def test_a_training_ends_although_its_last_update_is_skipped(tmp_path: Path) -> None:
    job = write_job(tmp_path, training=replace(TRAINING, skip_nonfinite=1), log_seconds=1e9)
    assert run(job, nan_gradients(12))["facts"]["skipped"] == 1
    assert [row["done"] for row in rows(job) if "loss" in row] == [11]


@pytest.mark.parametrize(("skip_nonfinite", "expected"), [(0, 1), (3, 13)])
def test_the_gradient_norm_is_read_every_update_only_if_updates_may_be_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, skip_nonfinite: int, expected: int
) -> None:
    path = write_job(tmp_path, training=replace(TRAINING, skip_nonfinite=skip_nonfinite), log_seconds=1e9)
    trainer = build_trainer(Job.read(path), Ranks())
    norm, calls = trainer.step.gradient_norm, []
    monkeypatch.setattr(trainer.step, "gradient_norm", lambda: calls.append(1) or norm())
    trainer.run(NEVER)
    assert len(calls) == expected


def test_a_dev_perplexity_that_is_not_finite_ends_as_diverged(tmp_path: Path) -> None:
    def broken() -> None:
        advance = Trainer.advance_position

        def spoil(self: Trainer, *args: Any) -> None:
            advance(self, *args)
            if self.position.update == 6:
                self.step.model.target_embedding.data.fill_(math.nan)

        Trainer.advance_position = spoil  # type: ignore[method-assign]

    answer = run(write_job(tmp_path, training=replace(TRAINING, patience=1, dev_bleu=2)), broken)
    assert answer["reason"] == "diverged"
    assert "the dev perplexity of update 6 is not finite" in answer["message"]


@pytest.mark.parametrize("batching", ["buckets", "packed"])
@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory. Tried 5 GiB\nmore"), RuntimeError("can't allocate memory: x")]
)
def test_a_batch_that_does_not_fit_is_described(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, batching: Literal["buckets", "packed"]
) -> None:
    seen: list[Batch] = []

    def full(_: Objective, batch: Batch) -> None:
        seen.append(batch)
        raise error

    monkeypatch.setattr(Objective, "forward", full)
    trainer = build_trainer(Job.read(write_job(tmp_path, training=replace(TRAINING, batching=batching))), Ranks())
    with pytest.raises(JobError) as caught:
        trainer.run(NEVER)
    message = str(caught.value)
    batch = seen[0]
    found = map(int, re.findall(r"(\d+) (?:pairs|source|target|of them|or less)", message))
    pairs, sources, targets, padding, pieces, lower = found
    assert (sources, targets, padding) == (batch.source.numel(), batch.target.numel(), batch.padding)
    assert (pieces, lower) == (batch.pieces, batch.pieces // 2)
    assert pairs == (len(batch.source) if batching == "buckets" else int((batch.labels == EOS).sum()))
    assert message.startswith("update 1 did not fit into memory")
    assert "REPRO_MICRO_BATCH_TOKENS, now all at once" in message
    assert message.endswith(str(error).splitlines()[0])


@pytest.mark.parametrize("limit", [{"batch_tokens": 60}, {"batch_sentences": 60}])
def test_under_strict_numerics_the_advice_is_one_that_it_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: dict[str, int]
) -> None:
    monkeypatch.setattr(setup, "configure_numerics", lambda *_: None)  # would change torch for the tests that follow
    monkeypatch.setattr(Objective, "forward", raise_out_of_memory)
    training = replace(TRAINING, numerics="strict", **limit)
    trainer = build_trainer(Job.read(write_job(tmp_path, training=training)), Ranks())
    (name,) = limit
    with pytest.raises(JobError, match=rf"lower training.{name}, now 60, or use a machine with more") as caught:
        trainer.run(NEVER)
    assert "MICRO_BATCH" not in str(caught.value)


def raise_out_of_memory(_: Objective, __: Batch) -> None:
    raise torch.OutOfMemoryError("CUDA out of memory")


def test_lack_of_memory_ends_with_its_own_reason(tmp_path: Path) -> None:
    def before() -> None:
        Objective.forward = raise_out_of_memory  # type: ignore[method-assign, assignment]

    answer = run(write_job(tmp_path, micro_batch_tokens=15), before)
    assert answer["reason"] == "out_of_memory"
    assert re.search(r"largest of [2-9] parts .*MICRO_BATCH_TOKENS, now 15, to \d or less", answer["message"])
