"""Tests of the comparison before a training with an experimental attention, on a CPU with attention made here."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from small_training import TRAINING, write_job
from torch import Tensor

from model.errors import JobError
from model.experimental.check_attention import compare_with_torch
from model.job import Job
from model.network.attention import PackedMask, Widths
from model.train import trainer_for
from model.training.distributed import Ranks
from model.training.trainer import Trainer


@pytest.fixture
def trainer(tmp_path: Path) -> Trainer:
    return trainer_for(Job.read(write_job(tmp_path, training=replace(TRAINING, batching="packed"))), Ranks())


def right(mask: PackedMask, x_MX: Tensor, memory_SY: Tensor | None, widths: Widths, p_drop: float) -> Tensor:
    return replace(mask, attention=None).attend(x_MX, memory_SY, widths, p_drop)


def scaled(mask: PackedMask, x_MX: Tensor, memory_SY: Tensor | None, widths: Widths, p_drop: float) -> Tensor:
    return 1.2 * right(mask, x_MX, memory_SY, widths, p_drop)


def looks_ahead(mask: PackedMask, x_MX: Tensor, memory_SY: Tensor | None, widths: Widths, p_drop: float) -> Tensor:
    return right(replace(mask, causal=False), x_MX, memory_SY, widths, p_drop)


def no_number(mask: PackedMask, x_MX: Tensor, memory_SY: Tensor | None, widths: Widths, p_drop: float) -> Tensor:
    return torch.nan * right(mask, x_MX, memory_SY, widths, p_drop)


def test_an_attention_that_is_torchs_is_taken_and_changes_no_update(trainer: Trainer, tmp_path: Path) -> None:
    other = trainer_for(Job.read(tmp_path / "run" / "job.json"), Ranks())
    compare_with_torch(trainer, right)
    losses = [each.train_step(next(iter(each.updates()))).sums for each in (trainer, other)]
    assert torch.equal(*losses)


@pytest.mark.parametrize("wrong", [scaled, looks_ahead, no_number])
def test_a_wrong_attention_is_refused_with_both_differences(trainer: Trainer, wrong: object) -> None:
    with pytest.raises(JobError, match=r"by (\d\S*|nan) \(allowed 0.002\).*by (\d\S*|nan) \(allowed 0.05\).*to torch"):
        compare_with_torch(trainer, wrong)  # type: ignore[arg-type]
