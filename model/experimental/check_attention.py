"""Compares an experimental attention with torch's on the first batches of a training, before its first update.

A kernel that is correct on one card may be wrong on another. Both compute the same weights and batches without dropout.
On an H200 the gradients of each differ from the float32 gradients of a CPU by 0.014.
"""

from itertools import islice

import torch
from torch import Tensor

from ..data.batch import Batch
from ..errors import JobError
from ..network.attention import PackedAttention
from ..numerics import autocast
from ..training.step import TrainingStep
from ..training.trainer import Trainer

UPDATES = 2
"""The number of updates with compared batches."""
LOSS_TOLERANCE = 2e-3
"""Maximum difference of the losses, relative to torch's loss."""
GRADIENT_TOLERANCE = 0.05
"""Maximum norm of the difference of all gradients, relative to the norm of torch's gradients."""


def compare_with_torch(trainer: Trainer, attention: PackedAttention) -> None:
    """Raise JobError with both differences if one is above its tolerance; if one rank raises it, the group ends."""
    step = trainer.step
    step.objective.eval()
    with torch.compiler.set_stance("force_eager"):  # compiling layers for two batches would take a minute
        batches = [batch for update in islice(trainer.updates(), UPDATES) for batch in update.micro_batches]
        found = [differences(step, batch, attention) for batch in batches if batch.pieces]
    step.objective.train()
    step.optimizer.zero_grad()
    step.model.packed_attention = attention
    # ``not <=`` instead of ``>``: it is also true for NaN.
    wrong = [pair for pair in found if not (pair[0] <= LOSS_TOLERANCE and pair[1] <= GRADIENT_TOLERANCE)]
    if wrong:
        loss, gradients = wrong[0]
        raise JobError(
            "bad_configuration",
            "site.packed_attention (REPRO_PACKED_ATTENTION) is 'own', but on this device its loss differs from that of "
            f"torch's attention by {loss:.2g} (allowed {LOSS_TOLERANCE:g}) and its gradients by {gradients:.2g} "
            f"(allowed {GRADIENT_TOLERANCE:g}): set it to torch",
        )


def differences(step: TrainingStep, batch: Batch, attention: PackedAttention) -> tuple[float, float]:
    """Return the relative differences of loss and gradients between ``attention`` and torch's attention."""
    loss, gradients = loss_and_gradients(step, batch, attention)
    exact, expected = loss_and_gradients(step, batch, None)
    return abs(loss - exact) / abs(exact), float((gradients - expected).norm() / expected.norm())


def loss_and_gradients(step: TrainingStep, batch: Batch, attention: PackedAttention | None) -> tuple[float, Tensor]:
    """Return the loss per piece, and all gradients in one dimension."""
    step.model.packed_attention = attention
    step.optimizer.zero_grad()
    with autocast(step.training, step.device):
        loss, _ = step.objective(batch.to(step.device))
    (loss / batch.pieces).backward()
    gradients = [p.grad.flatten().float() for p in step.model.parameters() if p.grad is not None]
    return float(loss.detach()) / batch.pieces, torch.cat(gradients)
