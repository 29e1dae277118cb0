"""The optimizer (§5.3), Adam as the paper has it or AdamW, the learning rate, and the moving average of the weights.

The rate is a pure function of the update, so a resumed training needs nothing else.
"""

import math

import torch
from torch import Tensor, nn

from ..config import Training
from ..network.transformer import Transformer


def optimizer_of(training: Training, model: nn.Module) -> torch.optim.Optimizer:
    """Fused over all parameters; the learning rate is set before every update.

    AdamW decays matrices and embeddings only, never biases and norms.
    """
    betas = (training.beta1, training.beta2)
    if training.optimizer == "adam":
        return torch.optim.Adam(model.parameters(), betas=betas, eps=training.eps, fused=True)
    matrices = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    groups = [{"params": matrices, "weight_decay": training.weight_decay}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, betas=betas, eps=training.eps, fused=True)


def learning_rate(training: Training, d_model: int, update: int) -> float:
    """Rate of an update, counted from 1."""
    warmup = training.warmup
    rise = float(update / training.warmup)
    if training.schedule == "paper":
        return training.factor / math.sqrt(d_model) * min(float(update**-0.5), update * float(warmup**-1.5))
    if update <= warmup:
        return training.peak * rise
    if training.schedule == "inverse_sqrt":
        return training.peak / math.sqrt(rise)
    if training.schedule == "linear":
        return training.peak * max(0, training.updates + 1 - update) / max(1, training.updates + 1 - warmup)
    return training.peak


class WeightAverage:
    """The moving average of a model's weights, by name: ``decay * average + (1 - decay) * weights`` after each update.

    It starts at the weights that the model has now. Early updates use the decay (1 + update) / (10 + update), if that
    is lower, so that the initial weights are soon forgotten; TensorFlow and Marian do the same.
    """

    def __init__(self, model: Transformer, decay: float) -> None:
        self.weights = dict(model.named_parameters())
        self.decay = decay
        self.tensors = {name: weight.detach().clone() for name, weight in self.weights.items()}

    @torch.no_grad()
    def add(self, update: int) -> None:
        """Add the present weights, which are those after ``update`` (counted from 1)."""
        decay = min(self.decay, (1 + update) / (10 + update))
        torch._foreach_lerp_(list(self.tensors.values()), list(self.weights.values()), 1 - decay)

    @torch.no_grad()
    def load(self, tensors: dict[str, Tensor]) -> None:
        """Continue from a saved average. Raises KeyError for a weight that it does not hold."""
        for name, tensor in self.tensors.items():
            tensor.copy_(tensors[name])
