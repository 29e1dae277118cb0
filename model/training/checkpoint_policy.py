"""When a training saves a checkpoint, and which checkpoints it keeps."""

import time
from collections.abc import Sequence

from ..config import Training
from .position import Position

SAVE_INTERVAL_FACTOR = 100
"""A checkpoint that only resuming needs waits at least this many times the duration of the last save."""


class CheckpointPolicy:
    """Saves every ``training.checkpoint_every`` updates for averaging, at each best validation, and in between for
    resuming every ``resume_seconds``; keeps the last ``training.keep`` for averaging."""

    def __init__(self, training: Training, resume_seconds: float = 60.0) -> None:
        self.training = training
        self.resume_seconds = resume_seconds
        self.last = training.updates
        """The final update; earlier than ``training.updates`` when patience ends the training."""
        self.saved_at = time.monotonic()
        self.save_seconds = 0.0

    def is_due(self, position: Position) -> bool:
        """Whether to save a checkpoint at this position."""
        update = position.update
        elapsed = time.monotonic() - self.saved_at
        averageable = self.is_averageable(update)
        among_last = update > self.last - self.training.keep * self.training.checkpoint_every
        # With patience any update can turn out to be among the last.
        if (averageable and (self.training.patience > 0 or among_last)) or update == position.best_update:
            return True
        due = averageable or elapsed > self.resume_seconds
        return due and (not self.resume_seconds or elapsed >= SAVE_INTERVAL_FACTOR * self.save_seconds)

    def record_save(self, started: float) -> None:
        """Note that a save which began at ``started`` (monotonic clock) is complete."""
        self.saved_at = time.monotonic()
        self.save_seconds = self.saved_at - started

    def is_averageable(self, update: int) -> bool:
        """Whether averaging reads a checkpoint of this update, if it is one of the last ``keep`` such."""
        counted = update if self.training.checkpoints_from == "start" else self.last - update
        return counted % self.training.checkpoint_every == 0 or update == self.last

    def averaged(self, updates: Sequence[int]) -> list[int]:
        """The updates, among those saved, whose weights are averaged."""
        return [update for update in updates if self.is_averageable(update)][-self.training.keep :]
