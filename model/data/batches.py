"""Groups pairs into updates.

The pairs of an update are a pure function of (lengths, budget, seed, update) and do not depend on the number
of ranks. With ``buckets``, an epoch is split into pools of shuffled pairs; within a pool, pairs of similar length are
batched together (§5.1) to reduce padding; then the batches of the epoch are shuffled. Otherwise a batch has pairs of
any length; with ``mixed`` it is computed in parts of pairs of similar length.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from itertools import count, islice

import numpy as np

from ..config import Model, SourceEnds, TargetEnds
from ..errors import bad_data
from .batch import Batch, load_padded
from .ends import NUMBER_OF_EOS, lengths_with_ends
from .packing import batch_shape_for, load_packed
from .shards import Array, Shards

POOL_BATCHES = 400
"""Pairs are sorted by length in pools of this many batches, so that their grouping differs in every epoch."""

MIXED_PART = 1_024
"""Maximum pieces per side of a part of a mixed batch; a part has pairs of similar length, to reduce padding."""


@dataclass(frozen=True)
class Cursor:
    """A position in the sequence of batches: the next batch is number ``batch`` of ``epoch``, both counted from 0."""

    epoch: int = 0
    batch: int = 0
    batches: int = 0
    """Number of batches of the epoch; 0: not counted yet."""

    @property
    def epochs_done(self) -> float:
        """Epochs read so far, including the fraction of the current one."""
        return self.epoch + self.batch / max(self.batches, 1)


@dataclass(frozen=True)
class Update:
    """One rank's micro-batches of an update; ``pieces`` is the number of pieces to predict on all ranks."""

    micro_batches: list[Batch]
    pieces: int
    next: Cursor


class BatchSampler:
    """Yields the batches of every epoch as row numbers. Lengths include special tokens.

    ``batching`` is a field of ``Training``. If ``sentences`` is above 0, it replaces the budget. Raises JobError if
    there is no pair, or if a pair exceeds the budget of an update.
    """

    def __init__(
        self,
        shards: Shards,
        budget: int,
        seed: int,
        batching: str = "buckets",
        sentences: int = 0,
        source_ends: SourceEnds = "eos",
        target_ends: TargetEnds = "eos",
    ) -> None:
        if len(shards) == 0:
            raise bad_data(f"{shards.folder} holds no pair to train on")
        self.source = lengths_with_ends(shards.lengths["source"], source_ends)
        self.target = shards.lengths["target"] + NUMBER_OF_EOS[target_ends]
        self.shards = shards
        self.budget = budget
        self.seed = seed
        self.packed = batching == "packed"
        self.mixed = batching == "mixed"
        self.sentences = sentences
        self.source_ends = source_ends
        self.target_ends = target_ends
        self._batch_shape = cache(partial(batch_shape_for, self.source, self.target))  # reads all lengths
        longest = int(np.argmax(np.maximum(self.source, self.target)))
        self.longest = int(max(self.source[longest], self.target[longest]))
        if self.longest > budget and not sentences:
            raise bad_data(
                f"pair {shards.pair_id(longest)} in {shards.folder} has {self.source[longest]} source and "
                f"{self.target[longest]} target pieces, more than training.batch_tokens {budget}"
            )

    def epoch(self, number: int) -> list[Array]:
        """Return the shuffled batches of one epoch. Every pair occurs once."""
        random = np.random.default_rng([self.seed, number])
        rows = random.permutation(len(self.source))
        if self.packed or self.mixed:
            return self._cut(rows, self.budget)
        pool = max(1, POOL_BATCHES * self.budget * len(self.source) // int(max(self.source.sum(), self.target.sum())))
        pool = POOL_BATCHES * self.sentences or pool
        pools = [self._sort(rows[i : i + pool]) for i in range(0, len(rows), pool)]
        if self.sentences:
            batches = [rows[i : i + self.sentences] for rows in pools for i in range(0, len(rows), self.sentences)]
        else:
            batches = [batch for rows in pools for batch in self._cut(rows, self.budget)]
        return [batches[i] for i in random.permutation(len(batches))]

    def updates_of(self, epochs: int) -> int:
        """Return the number of batches of the first ``epochs`` epochs."""
        return next(n for n, (_, then) in enumerate(self.batches_from(Cursor())) if then.epoch == epochs)

    def epoch_begins(self, updates: int) -> list[int]:
        """Return the number of batches before each epoch that the first ``updates`` batches reach."""
        begins = enumerate(islice(self.batches_from(Cursor()), updates))
        return [n for n, (_, then) in begins if then.batch == 1]

    def batches_from(self, cursor: Cursor) -> Iterator[tuple[Array, Cursor]]:
        """Yield batches without end, starting at ``cursor``, each with the cursor after it."""
        begin = cursor.batch
        for epoch in count(cursor.epoch):
            batches = self.epoch(epoch)
            for i in range(begin, len(batches)):
                yield batches[i], Cursor(epoch, i + 1, len(batches))
            begin = 0

    def read(self, batch: Array, following: Cursor, rank: int, ranks: int, most: int) -> Update:
        """Read one rank's share of a batch as micro-batches of at most ``most`` pieces per side; 0: do not split."""
        if self.mixed:
            most = min(most or MIXED_PART, MIXED_PART)
        parts = self.split_rows(self.rank_rows(batch, rank, ranks), most)
        return Update([self.load(part, ranks, most) for part in parts], int(self.target[batch].sum()), following)

    def rank_rows(self, batch: Array, rank: int, ranks: int) -> Array:
        """Return one rank's rows of a batch; all ranks get similar lengths."""
        rows = self._sort(batch) if self.mixed or (self.packed and ranks > 1) else batch
        return rows[rank::ranks]

    def split_rows(self, rows: Array, most: int) -> list[Array]:
        """Split rows into parts of at most ``most`` pieces per side; a longer pair is its own part.

        0 does not split. Without rows there is one empty part, because every rank takes part in every update.
        """
        return self._cut(rows, most) if most and len(rows) else [rows]

    def load(self, rows: Array, ranks: int, most: int) -> Batch:
        """Read a part that ``split_rows`` returned."""
        if not self.packed:
            return load_padded(self.shards, rows, self.source_ends, self.target_ends)
        # The ranks' shares of a batch differ by about one pair.
        each = self.budget if ranks == 1 else -(-self.budget // ranks) + self.longest
        shape = self._batch_shape(min(most, each) if most else each)
        return load_packed(self.shards, rows, shape, self.source_ends, self.target_ends)

    def _sort(self, rows: Array) -> Array:
        source = self.source[rows]
        target = self.target[rows]
        # Source lengths ascend for one target length and descend for the next, so that a batch with two target
        # lengths has sources of similar length.
        return rows[np.lexsort((np.where(target % 2, source, -source), target))]

    def _cut(self, rows: Array, budget: int) -> list[Array]:
        """Split rows, in order, into batches of at most ``budget`` pieces per side, but at least one row."""
        most = self._batch_shape(budget).pieces if self.packed else (budget, budget)
        before = [np.cumsum(np.append(0, lengths[rows])) for lengths in (self.source, self.target)]
        batches = []
        begin = 0
        while begin < len(rows):
            ends = (
                int(np.searchsorted(pieces, pieces[begin] + min(limit, budget), side="right")) - 1
                for pieces, limit in zip(before, most, strict=True)
            )
            end = max(min(ends), begin + 1)
            batches.append(rows[begin:end])
            begin = end
        return batches


def check_lengths(shards: Shards, config: Model, target_ends: TargetEnds = "eos") -> None:
    """Raise JobError naming the longest pair if it exceeds the learned positions."""
    if not config.learns_positions or not len(shards):
        return
    sources = lengths_with_ends(shards.lengths["source"], config.source_ends)
    targets = shards.lengths["target"] + NUMBER_OF_EOS[target_ends]
    for side, lengths in (("source", sources), ("target", targets)):
        row = int(np.argmax(lengths))
        if lengths[row] > config.max_positions:
            raise bad_data(
                f"pair {shards.pair_id(row)} in {shards.folder} has {lengths[row]} {side} pieces, "
                f"more than the {config.max_positions} learned positions (model.max_positions)"
            )
