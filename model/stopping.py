"""When a training is over, and which of its checkpoints is the best: functions of where it stands.

In comes a Position and the dev perplexity (§6.2), out goes a Position. All of it lies in checkpoints, and all ranks
hold the same numbers, so a resumed training and every rank decide alike.
"""

from dataclasses import replace

from model.checkpoint import Position
from model.config import Training


def judged(training: Training, position: Position, perplexity: float) -> Position:
    """The position after a dev check. With ``patience`` it also says which check was best, and how many came since."""
    position = replace(position, dev_perplexity=perplexity)
    if not training.patience:
        return position
    if position.best_update == 0 or perplexity < position.best_dev_perplexity:
        return replace(position, best_update=position.update, best_dev_perplexity=perplexity, checks_since_best=0)
    return replace(position, checks_since_best=position.checks_since_best + 1)


def is_over(training: Training, position: Position) -> bool:
    """Whether the last update is done, or patience is at its end."""
    return position.update >= training.updates or 0 < training.patience <= position.checks_since_best
