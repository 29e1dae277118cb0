"""Which pairs make an update, and their pieces as tensors.

The pairs of an update are a pure function of (lengths, budget, seed, update), whatever the number of ranks. An epoch
is cut into pools of many batches' worth of shuffled pairs; within a pool pairs of like length come together (§5.1),
so that little is padding; then the batches of the epoch are shuffled.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from model.bpe import BOS, EOS, PAD
from model.config import Model
from model.endings import BadData
from model.shards import Array, Shards

POOL_BATCHES = 400
"""Batches' worth of pairs that are sorted together: like lengths, yet other companions in every epoch."""


@dataclass(frozen=True)
class Batch:
    """Pieces of some pairs: sources … eos (B, S), decoder inputs bos … (B, T), where to predict (M) and what (M).

    ``places_M`` indexes the flattened (B, T); positions that are padding are not among them.
    """

    source_BS: Tensor
    target_BT: Tensor
    places_M: Tensor
    labels_M: Tensor
    padding: int
    """Cells of both sides that hold no piece."""

    @property
    def cells(self) -> int:
        return self.source_BS.numel() + self.target_BT.numel()

    def to(self, device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The tensors on a device, in the order of ``Objective.forward``."""
        tensors = (self.source_BS, self.target_BT, self.places_M, self.labels_M)
        if device.type == "cpu":
            return tensors
        source, target, places, labels = (x.pin_memory().to(device, non_blocking=True) for x in tensors)
        return source, target, places, labels


@dataclass(frozen=True)
class Place:
    """A place in the order of batches: the next one is number ``batch`` of ``epoch``, both counted from 0."""

    epoch: int = 0
    batch: int = 0


class Plan:
    """The batches of every epoch as row numbers. Lengths count bos or eos.

    Raises BadData where there is no pair, or a pair is longer than the budget of an update.
    """

    def __init__(self, shards: Shards, budget: int, seed: int) -> None:
        if len(shards) == 0:
            raise BadData(f"{shards.folder} holds no pair to train on")
        self.source, self.target = shards.lengths["source"] + 1, shards.lengths["target"] + 1
        self.budget, self.seed = budget, seed
        longest = int(np.argmax(np.maximum(self.source, self.target)))
        if max(self.source[longest], self.target[longest]) > budget:
            raise BadData(
                f"pair {shards.pair_id(longest)} in {shards.folder} has {self.source[longest]} source and "
                f"{self.target[longest]} target pieces, more than training.batch_tokens {budget}"
            )

    def epoch(self, number: int) -> list[Array]:
        """The batches of one epoch, shuffled: every row once."""
        random = np.random.default_rng([self.seed, number])
        rows = random.permutation(len(self.source))
        pool = max(1, POOL_BATCHES * self.budget * len(rows) // int(max(self.source.sum(), self.target.sum())))
        batches = [batch for i in range(0, len(rows), pool) for batch in self._cut(self._sort(rows[i : i + pool]))]
        return [batches[i] for i in random.permutation(len(batches))]

    def after(self, place: Place) -> Iterator[tuple[Array, Place]]:
        """Batches without end from a place on, each with the place that follows it."""
        epoch, begin = place.epoch, place.batch
        while True:
            batches = self.epoch(epoch)
            for i in range(begin, len(batches)):
                yield batches[i], Place(epoch, i + 1)
            epoch, begin = epoch + 1, 0

    def share(self, batch: Array, rank: int, ranks: int) -> Array:
        """One rank's rows of a batch; every rank has like lengths, as batches are sorted."""
        return batch[rank::ranks]

    def parts(self, rows: Array, most: int) -> list[Array]:
        """Rows cut so that none has more target pieces than ``most``, where its one pair has not; 0 cuts nothing.

        Without any row: one part without any, since every rank takes part in every update.
        """
        return self._cut(rows, most) if most and len(rows) else [rows]

    def _sort(self, rows: Array) -> Array:
        source, target = self.source[rows], self.target[rows]
        # Sources go up and down in turns, so that a batch across two target lengths has sources of like length.
        return rows[np.lexsort((np.where(target % 2, source, -source), target))]

    def _cut(self, rows: Array, budget: int = 0) -> list[Array]:
        source, target = np.cumsum(self.source[rows]), np.cumsum(self.target[rows])
        batches, begin, budget = [], 0, budget or self.budget
        while begin < len(rows):
            spent = (source[begin] - self.source[rows[begin]], target[begin] - self.target[rows[begin]])
            end = min(
                np.searchsorted(source, spent[0] + budget, side="right"),
                np.searchsorted(target, spent[1] + budget, side="right"),
            )
            end = max(int(end), begin + 1)
            batches.append(rows[begin:end])
            begin = end
        return batches


def check_lengths(shards: Shards, config: Model) -> None:
    """Raise BadData naming the first pair that has no learned position for its last piece."""
    if config.positions != "learned":
        return
    for side in ("source", "target"):
        row = int(np.argmax(shards.lengths[side])) if len(shards) else 0
        if len(shards) and shards.lengths[side][row] + 1 > config.max_positions:
            raise BadData(
                f"pair {shards.pair_id(row)} in {shards.folder} has {shards.lengths[side][row] + 1} {side} pieces, "
                f"more than the {config.max_positions} learned positions (model.max_positions)"
            )


def load(shards: Shards, rows: Array) -> Batch:
    """Read rows and pad them. Without any row: a batch of one pair of which nothing is to be predicted."""
    sources = [shards.pieces("source", row) for row in rows]
    targets = [shards.pieces("target", row) for row in rows]
    source_BS = np.full((max(len(rows), 1), 1 + max(map(len, sources), default=0)), PAD, np.int64)
    target_BT = np.full((max(len(rows), 1), 1 + max(map(len, targets), default=0)), PAD, np.int64)
    labels_BT = np.full_like(target_BT, PAD)
    source_BS[len(rows) :, 0] = EOS
    target_BT[:, 0] = BOS
    for i, (source, target) in enumerate(zip(sources, targets, strict=True)):
        source_BS[i, : len(source)], source_BS[i, len(source)] = source, EOS
        target_BT[i, 1 : 1 + len(target)] = target
        labels_BT[i, : len(target)], labels_BT[i, len(target)] = target, EOS
    flat = labels_BT.reshape(-1)
    places_M = np.flatnonzero(flat != PAD)
    padding = int((source_BS == PAD).sum()) + flat.size - len(places_M)
    tensors = [torch.from_numpy(array) for array in (source_BS, target_BT, places_M, flat[places_M])]
    return Batch(tensors[0], tensors[1], tensors[2], tensors[3], padding)
