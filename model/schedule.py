"""The learning rate of every update (§5.3): a pure function, so that a resumed run needs nothing but its update."""

import math

from model.config import Training


def learning_rate(training: Training, d_model: int, update: int) -> float:
    """Rate of an update, counted from 1."""
    warmup, rise = training.warmup, float(update / training.warmup)
    if training.schedule == "paper":
        return training.factor / math.sqrt(d_model) * min(float(update**-0.5), update * float(warmup**-1.5))
    if update <= warmup:
        return training.peak * rise
    if training.schedule == "inverse_sqrt":
        return training.peak / math.sqrt(rise)
    if training.schedule == "linear":
        return training.peak * max(0, training.updates + 1 - update) / max(1, training.updates + 1 - warmup)
    return training.peak
