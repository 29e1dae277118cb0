"""Which pairs make an update, and their pieces as tensors.

The pairs of an update are a pure function of (lengths, budget, seed, update), whatever the number of ranks. An epoch
is cut into pools of many batches' worth of shuffled pairs; within a pool pairs of like length come together (§5.1),
so that little is padding; then the batches of the epoch are shuffled.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np
import torch
from torch import Tensor

from ..config import Model
from ..config.special_pieces import BOS, EOS, PAD
from ..errors import JobError
from ..network.transformer import Packing
from .packing import BatchShape, batch_shape_for, pack
from .shards import Array, Shards

POOL_BATCHES = 400
"""Batches' worth of pairs that are sorted together: like lengths, yet other companions in every epoch."""


@dataclass(frozen=True)
class Batch:
    """Pieces of some pairs: sources … eos, decoder inputs bos …, and what is to be predicted.

    Padded rows (``packing`` is None): ``source`` is (B, S), ``target`` (B, T), ``label_indices`` (M) where to predict
    in the flattened (B, T), ``labels`` (M) what. End to end: ``source`` is (S), ``target`` and ``labels`` are (T), the
    labels of padding PAD, and ``label_indices`` is None.
    """

    source: Tensor
    target: Tensor
    labels: Tensor
    label_indices: Tensor | None
    packing: Packing | None
    padding: int
    """Cells of both sides that hold no piece."""
    pieces: int
    """Pieces to be predicted."""

    @property
    def num_positions(self) -> int:
        return self.source.numel() + self.target.numel()

    def to(self, device: torch.device) -> "Batch":
        """The batch on a device; the host does not wait for it."""
        return self if device.type == "cpu" else self._each(lambda x: x.to(device, non_blocking=True))

    def pin_memory(self) -> "Batch":
        """The batch in memory that a GPU reads by itself."""
        return self._each(Tensor.pin_memory)

    def _each(self, move: Callable[[Tensor], Tensor]) -> "Batch":
        packing = self.packing and Packing(
            replace(self.packing.source, cu_seqlens=move(self.packing.source.cu_seqlens)),
            replace(self.packing.target, cu_seqlens=move(self.packing.target.cu_seqlens)),
            move(self.packing.source_positions_S),
            move(self.packing.target_positions_T),
        )
        label_indices = None if self.label_indices is None else move(self.label_indices)
        source, target, labels = (move(x) for x in (self.source, self.target, self.labels))
        return replace(self, source=source, target=target, labels=labels, label_indices=label_indices, packing=packing)


@dataclass(frozen=True)
class Cursor:
    """A cursor in the order of batches: the next one is number ``batch`` of ``epoch``, both counted from 0."""

    epoch: int = 0
    batch: int = 0


@dataclass(frozen=True)
class Update:
    """What one rank computes of an update, in parts; ``pieces`` to be predicted are those of all ranks."""

    micro_batches: list[Batch]
    pieces: int
    next: Cursor

    def pin_memory(self) -> "Update":
        return replace(self, micro_batches=[part.pin_memory() for part in self.micro_batches])


class BatchSampler:
    """The batches of every epoch as row numbers. Lengths count bos or eos.

    ``batching`` is Training's. Raises JobError without any pair, or for a pair longer than the budget of an update.
    """

    def __init__(self, shards: Shards, budget: int, seed: int, batching: str = "buckets") -> None:
        if len(shards) == 0:
            raise JobError("bad_data", f"{shards.folder} holds no pair to train on")
        self.source, self.target = shards.lengths["source"] + 1, shards.lengths["target"] + 1
        self.shards, self.budget, self.seed, self.packed = shards, budget, seed, batching == "packed"
        self._batch_shape = cache(partial(batch_shape_for, self.source, self.target))  # asks all lengths
        longest = int(np.argmax(np.maximum(self.source, self.target)))
        self.longest = int(max(self.source[longest], self.target[longest]))
        if self.longest > budget:
            raise JobError(
                "bad_data",
                f"pair {shards.pair_id(longest)} in {shards.folder} has {self.source[longest]} source and "
                f"{self.target[longest]} target pieces, more than training.batch_tokens {budget}",
            )

    def epoch(self, number: int) -> list[Array]:
        """The batches of one epoch, shuffled: every row once."""
        random = np.random.default_rng([self.seed, number])
        rows = random.permutation(len(self.source))
        if self.packed:
            return self._cut(rows, self._most(self.budget))
        pool = max(1, POOL_BATCHES * self.budget * len(rows) // int(max(self.source.sum(), self.target.sum())))
        pools = [self._sort(rows[i : i + pool]) for i in range(0, len(rows), pool)]
        batches = [batch for rows in pools for batch in self._cut(rows, self._most(self.budget))]
        return [batches[i] for i in random.permutation(len(batches))]

    def batches_from(self, cursor: Cursor) -> Iterator[tuple[Array, Cursor]]:
        """Batches without end from a cursor on, each with the cursor that follows it."""
        epoch, begin = cursor.epoch, cursor.batch
        while True:
            batches = self.epoch(epoch)
            for i in range(begin, len(batches)):
                yield batches[i], Cursor(epoch, i + 1)
            epoch, begin = epoch + 1, 0

    def read(self, batch: Array, following: Cursor, rank: int, ranks: int, most: int) -> Update:
        """One rank's part of a batch, in parts of at most ``most`` pieces a side; 0 cuts nothing."""
        parts = self.split_rows(self.rank_rows(batch, rank, ranks), most)
        return Update([self.load(part, ranks, most) for part in parts], int(self.target[batch].sum()), following)

    def rank_rows(self, batch: Array, rank: int, ranks: int) -> Array:
        """One rank's rows of a batch; every rank has like lengths."""
        rows = batch if not self.packed or ranks == 1 else self._sort(batch)
        return rows[rank::ranks]

    def split_rows(self, rows: Array, most: int) -> list[Array]:
        """Rows cut so that none has more pieces a side than ``most``, where its one pair has not; 0 cuts nothing.

        Without any row: one part without any, since every rank takes part in every update.
        """
        return self._cut(rows, self._most(most)) if most and len(rows) else [rows]

    def load(self, rows: Array, ranks: int, most: int) -> Batch:
        """Read one part of ``split_rows``."""
        if not self.packed:
            return load_padded(self.shards, rows)
        # Ranks' shares of a batch differ by a pair or so.
        each = self.budget if ranks == 1 else -(-self.budget // ranks) + self.longest
        return load_packed(self.shards, rows, self._batch_shape(min(most, each) if most else each))

    def _most(self, budget: int) -> tuple[int, int]:
        """Source and target pieces that a batch may have."""
        source, target = self._batch_shape(budget).pieces if self.packed else (budget, budget)
        return min(source, budget), min(target, budget)

    def _sort(self, rows: Array) -> Array:
        source, target = self.source[rows], self.target[rows]
        # Sources go up and down in turns, so that a batch across two target lengths has sources of like length.
        return rows[np.lexsort((np.where(target % 2, source, -source), target))]

    def _cut(self, rows: Array, most: tuple[int, int]) -> list[Array]:
        """Rows in their order as batches of at most so many source and target pieces, or of one row."""
        source, target = np.cumsum(self.source[rows]), np.cumsum(self.target[rows])
        batches, begin, spent = [], 0, (0, 0)
        while begin < len(rows):
            end = min(
                int(np.searchsorted(source, spent[0] + most[0], side="right")),
                int(np.searchsorted(target, spent[1] + most[1], side="right")),
            )
            end = max(end, begin + 1)
            batches.append(rows[begin:end])
            begin, spent = end, (int(source[end - 1]), int(target[end - 1]))
        return batches


def check_lengths(shards: Shards, config: Model) -> None:
    """Raise JobError naming the first pair that has no learned position for its last piece."""
    if config.positions != "learned":
        return
    for side in ("source", "target"):
        row = int(np.argmax(shards.lengths[side])) if len(shards) else 0
        if len(shards) and shards.lengths[side][row] + 1 > config.max_positions:
            raise JobError(
                "bad_data",
                f"pair {shards.pair_id(row)} in {shards.folder} has {shards.lengths[side][row] + 1} {side} pieces, "
                f"more than the {config.max_positions} learned positions (model.max_positions)",
            )


def load_padded(shards: Shards, rows: Array) -> Batch:
    """Read rows and pad them. Without any row: a batch of one pair of which nothing is to be predicted."""
    sources, targets = shards.gather("source", rows), shards.gather("target", rows)
    count = max(len(rows), 1)
    source_BS = np.full((count, 1 + sources[1].max(initial=0)), PAD, np.int64)
    target_BT = np.full((count, 1 + targets[1].max(initial=0)), PAD, np.int64)
    labels_BT = np.full_like(target_BT, PAD)
    source_BS[len(rows) :, 0] = EOS
    target_BT[:, 0] = BOS
    valid_BS, valid_BT = (
        np.arange(x.shape[1]) < n[:, None] for x, n in ((source_BS, sources[1]), (target_BT, targets[1]))
    )
    each = np.arange(len(rows))
    source_BS[: len(rows)][valid_BS] = sources[0]
    source_BS[each, sources[1]] = EOS
    target_BT[: len(rows), 1:][valid_BT[:, :-1]] = targets[0]
    labels_BT[: len(rows)][valid_BT] = targets[0]
    labels_BT[each, targets[1]] = EOS
    flat = labels_BT.reshape(-1)
    label_indices = np.flatnonzero(flat != PAD)
    padding = int((source_BS == PAD).sum()) + flat.size - len(label_indices)
    source, target, labels = (torch.from_numpy(x) for x in (source_BS, target_BT, flat[label_indices]))
    return Batch(source, target, labels, torch.from_numpy(label_indices), None, padding, len(label_indices))


def load_packed(shards: Shards, rows: Array, shape: BatchShape) -> Batch:
    """Read rows and lay them end to end."""
    packed = pack(shards, rows, shape)
    source, target, labels = (torch.from_numpy(x) for x in (packed.source, packed.target, packed.labels))
    pieces = int((packed.labels != PAD).sum())
    return Batch(source, target, labels, None, packed.packing, packed.padding, pieces)


def out_of_memory_error(update: Update, number: int, most: int, error: Exception) -> JobError:
    """The end of a training at an update; ``most`` is its ``site.micro_batch_tokens``, ``error`` what was raised."""
    largest = max(update.micro_batches, key=lambda part: part.num_positions)
    now = f"now {most:,}" if most else "now all at once"
    cause = (str(error).strip() or type(error).__name__).splitlines()[0]
    return JobError(
        "out_of_memory",
        f"update {number} did not fit into memory: the largest of {len(update.micro_batches)} parts has "
        f"{describe_batch(largest)}; "
        f"set REPRO_MICRO_BATCH_TOKENS, {now}, to {max(1, largest.pieces // 2):,} or less: {cause}",
    )


def describe_batch(batch: Batch) -> str:
    """How large a batch is, in words."""
    pairs, sources, targets = int((batch.target == BOS).sum()), batch.source.numel(), batch.target.numel()
    return (
        f"{pairs:,} pairs, {sources:,} source and {targets:,} target positions, {batch.padding:,} of them padding, "
        f"{batch.pieces:,} target pieces"
    )
