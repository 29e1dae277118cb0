"""Tests of updates with gradients that are not finite, and of batches that do not fit into memory."""

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from small_training import TRAINING, run, write_job

from model.data.batch import Batch
from model.data.batches import Update
from model.training.loss import Objective
from model.training.metrics import LossSums
from model.training.step import TrainingStep
from model.training.trainer import Trainer


def test_a_nonfinite_gradient_ends_as_diverged(tmp_path: Path) -> None:
    def broken() -> None:
        gradients = TrainingStep.compute_gradients

        def spoil(self: TrainingStep, update: Update) -> LossSums:
            losses = gradients(self, update)
            if self.update == 6:
                next(self.model.parameters()).grad[0, 0] = math.nan  # type: ignore[index]
            return losses

        TrainingStep.compute_gradients = spoil  # type: ignore[method-assign]

    answer = run(write_job(tmp_path), broken)
    assert answer["reason"] == "diverged"
    expected = "the gradient of update 6 is not finite, at learning rate 0.003; the last checkpoint is of update 4"
    assert answer["message"] == f"{expected}. Lower training.peak or training.factor, or raise training.warmup"


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
