"""Tests of updates with gradients that are not finite, and of batches that do not fit into memory."""

import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from small_training import TRAINING, rows, run, weights, write_job

from model.data.batch import Batch
from model.data.batches import Update
from model.training.distributed import Ranks
from model.training.loss import Objective
from model.training.metrics import LossSums
from model.training.step import TrainingStep
from model.training.trainer import Trainer


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


def raise_out_of_memory(_: Objective, __: Batch) -> None:
    raise torch.OutOfMemoryError("CUDA out of memory")


def test_lack_of_memory_ends_with_its_own_reason(tmp_path: Path) -> None:
    def before() -> None:
        Objective.forward = raise_out_of_memory  # type: ignore[method-assign, assignment]

    answer = run(write_job(tmp_path, micro_batch_tokens=15), before)
    assert answer["reason"] == "out_of_memory"
    assert re.search(r"largest of [2-9] parts .*MICRO_BATCH_TOKENS, now 15, to \d or less", answer["message"])
