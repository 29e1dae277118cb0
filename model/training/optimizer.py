"""The optimizer (§5.3; Adam as in the paper, or AdamW) and the learning rate.

The learning rate is a pure function of the update (with the schedule clock of the training's seconds too, which
checkpoints hold), so a resumed training needs no state of a schedule.
"""

import math

import torch
from torch import nn

from ..config import Training


def optimizer_of(training: Training, model: nn.Module) -> torch.optim.Optimizer:
    """Build the optimizer, fused over all parameters; ``TrainingStep`` sets the learning rate before every update."""
    betas = (training.beta1, training.beta2)
    if training.optimizer == "adam":
        return torch.optim.Adam(model.parameters(), betas=betas, eps=training.eps, fused=True)
    matrices = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    groups = [{"params": matrices, "weight_decay": training.weight_decay}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, betas=betas, eps=training.eps, fused=True)


def learning_rate(training: Training, d_model: int, update: int, seconds: float = 0.0) -> float:
    """Return the learning rate of an update, counted from 1, which begins after so many ``seconds`` of the training."""
    warmup = training.warmup
    rise = float(update / training.warmup)
    if training.schedule == "paper":
        return training.factor / math.sqrt(d_model) * min(float(update**-0.5), update * float(warmup**-1.5))
    if update <= warmup and training.schedule != "clock":
        return training.peak * rise
    if training.schedule == "inverse_sqrt":
        return training.peak / math.sqrt(rise)
    if training.schedule == "constant":
        return training.peak
    linear = training.peak * max(0, training.updates + 1 - update) / max(1, training.updates + 1 - warmup)
    if training.schedule == "linear":
        return linear
    return min(training.peak * rise, linear, training.peak * max(0.0, 1 - seconds / (60 * training.minutes)))
