"""Reads one rank's part of each update, cut into micro-batches."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import torch

from ..data.batches import BatchSampler, Cursor, Update
from ..data.shards import Array
from .distributed import Ranks


@dataclass(frozen=True)
class UpdateReader:
    """Reads updates of ``sampler`` for one rank, into pinned memory for a GPU.

    ``micro_batch_tokens`` is the maximum of target tokens in a micro-batch; 0 does not cut.
    """

    sampler: BatchSampler
    ranks: Ranks
    device: torch.device
    micro_batch_tokens: int

    def read_from(self, cursor: Cursor, count: int) -> Iterator[Update]:
        """Yield the ``count`` updates that follow ``cursor``."""
        for rows, following in islice(self.sampler.batches_from(cursor), count):
            yield self.read(rows, following)

    def read(self, rows: Array, following: Cursor) -> Update:
        """Read the update of these rows; ``following`` is the cursor after it."""
        update = self.sampler.read(rows, following, self.ranks.rank, self.ranks.world_size, self.micro_batch_tokens)
        if self.device.type != "cuda":
            return update
        with torch.cuda.device(self.device):  # a thread does not inherit the current device
            return update.pin_memory()
