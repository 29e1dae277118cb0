"""What an epoch of a training is: its batches, tokens and minutes."""

import numpy as np

from ..data.batches import BatchSampler, Cursor
from ..job import Facts
from ..metric_names import EPOCH_BATCHES, EPOCH_MINUTES, EPOCH_SOURCE_TOKENS, EPOCH_TARGET_TOKENS, EPOCHS
from .position import Position


def epoch_facts(sampler: BatchSampler, position: Position) -> Facts:
    """Epochs read so far; batches and tokens of the present one, special tokens included; mean minutes of one."""
    batches = sampler.epoch(position.epoch, position.update - position.batch)
    rows = np.concatenate(batches)
    epochs = Cursor(position.epoch, position.batch, len(batches)).epochs_done
    return {
        EPOCHS: round(epochs, 4),
        EPOCH_BATCHES: len(batches),
        EPOCH_SOURCE_TOKENS: int(sampler.source[rows].sum()),
        EPOCH_TARGET_TOKENS: int(sampler.target[rows].sum()),
        EPOCH_MINUTES: round(position.seconds / 60 / epochs, 4),
    }
