"""The position of a training: its progress, whether it is finished, and the update with the best checkpoint.

A Position is saved in every checkpoint and equal on all ranks, so a resumed training and all ranks decide the same.
"""

from dataclasses import dataclass, replace

from ..config import Training


@dataclass(frozen=True)
class Position:
    """The state of a training after ``update``, except for weights and moments.

    It holds no random state: the random numbers of an update are a function of seed, update and rank.
    """

    update: int = 0
    epoch: int = 0
    batch: int = 0
    target_tokens: int = 0
    seconds: float = 0.0
    dev_perplexity: float = 0.0
    best_update: int = 0
    """The update with the lowest dev perplexity so far; 0 before the first validation and without patience."""
    best_dev_perplexity: float = 0.0
    checks_since_best: int = 0


def after_validation(training: Training, position: Position, perplexity: float) -> Position:
    """Return the position after a validation; with ``patience``, also with the best update and the checks since."""
    position = replace(position, dev_perplexity=perplexity)
    if not training.patience:
        return position
    if position.best_update == 0 or perplexity < position.best_dev_perplexity:
        return replace(position, best_update=position.update, best_dev_perplexity=perplexity, checks_since_best=0)
    return replace(position, checks_since_best=position.checks_since_best + 1)


def is_finished(training: Training, position: Position) -> bool:
    """Whether the last update is done, patience has run out, or the minutes are over and ``keep`` checkpoints exist."""
    late = 0 < 60 * training.minutes <= position.seconds
    return (
        position.update >= training.updates
        or 0 < training.patience <= position.checks_since_best
        or (late and position.update >= training.keep * training.checkpoint_every)
    )
