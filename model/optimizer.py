"""The optimiser of a training (§5.3): Adam as the paper has it, or AdamW."""

import torch
from torch import nn

from model.config import Training


def optimizer_of(training: Training, model: nn.Module) -> torch.optim.Optimizer:
    """Fused over all parameters; the learning rate is set before every update.

    AdamW decays matrices and embeddings only: what a bias or a norm is has nothing to do with its size.
    """
    betas = (training.beta1, training.beta2)
    if training.optimizer == "adam":
        return torch.optim.Adam(model.parameters(), betas=betas, eps=training.eps, fused=True)
    matrices = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    groups = [{"params": matrices, "weight_decay": training.weight_decay}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, betas=betas, eps=training.eps, fused=True)
