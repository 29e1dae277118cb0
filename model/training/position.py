"""Where a training stands: when it is over, and which of its checkpoints is the best.

Functions from a Position and the dev perplexity (§6.2) to a Position. All of it lies in checkpoints, and all ranks hold
the same numbers, so a resumed training and every rank decide alike.
"""

from dataclasses import dataclass, replace

from ..config import Training


@dataclass(frozen=True)
class Position:
    """Where a training stands after ``update``: all that is neither weight nor moment.

    Random numbers are no part of it: those of an update are a function of seed, update and rank.
    """

    update: int = 0
    epoch: int = 0
    batch: int = 0
    target_tokens: int = 0
    seconds: float = 0.0
    dev_perplexity: float = 0.0
    best_update: int = 0
    """Of the dev check with the lowest perplexity so far; 0 before the first, and where no best is sought."""
    best_dev_perplexity: float = 0.0
    checks_since_best: int = 0
    skipped: int = 0
    """Updates that were passed over, as their gradients were not finite."""
    gpu_kwh: float = 0.0


def after_validation(training: Training, position: Position, perplexity: float) -> Position:
    """The position after a dev check. With ``patience`` it also says which check was best, and how many came since."""
    position = replace(position, dev_perplexity=perplexity)
    if not training.patience:
        return position
    if position.best_update == 0 or perplexity < position.best_dev_perplexity:
        return replace(position, best_update=position.update, best_dev_perplexity=perplexity, checks_since_best=0)
    return replace(position, checks_since_best=position.checks_since_best + 1)


def is_finished(training: Training, position: Position) -> bool:
    """Whether the last update is done, or patience is at its end."""
    return position.update >= training.updates or 0 < training.patience <= position.checks_since_best
