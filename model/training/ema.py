"""Exponential moving average of the weights: ``decay * average + (1 - decay) * weights`` after each update."""

import torch

from ..network.transformer import Transformer


class WeightAverage:
    """The moving average of a model's weights, by name. It starts at the weights that the model has now.

    Early updates use the decay (1 + update) / (10 + update), if that is lower, so that the initial weights are soon
    forgotten; TensorFlow and Marian do the same.
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
    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        """Continue from a saved average. Raises KeyError for a weight that it does not hold."""
        for name, tensor in self.tensors.items():
            tensor.copy_(tensors[name])
