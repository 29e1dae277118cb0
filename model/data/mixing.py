"""Draws the pairs of an epoch from the parts of a corpus by the shares of ``Training.mixture``.

The part of the pair ``europarl:48211`` is ``europarl``. An epoch has as many pairs as the shards. If a part's share is
larger than the part, all its pairs occur n times before one occurs n + 1 times. If the share is smaller, each epoch
gets a new random choice of its pairs.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..config.mixture import Mixture
from ..errors import bad_data
from .shards import Array, Shards


class Mixer:
    """Draws the rows of each epoch from the parts of the shards."""

    def __init__(self, shards: Shards, mixture: Mixture) -> None:
        self.mixture = mixture
        self.pairs = len(shards)
        self.rows = _rows_by_part(shards)
        for name, _ in mixture.shares:
            if name not in self.rows:
                there = ", ".join(self.rows)
                raise bad_data(f"training.mixture names {name!r}, but {shards.folder} has pairs of {there}")

    def draw(self, random: np.random.Generator) -> Array:
        """Return the shuffled rows of an epoch; each part has its share of them, rounded to whole pairs."""
        own = self.mixture
        shares = dict(own.shares) or {name: len(rows) ** (1 / own.temperature) for name, rows in self.rows.items()}
        total = sum(shares.values())
        ends = np.round(np.cumsum(list(shares.values())) / total * self.pairs).astype(int)
        drawn = [
            _repeat(self.rows[name], count, random)
            for name, count in zip(shares, np.diff(ends, prepend=0).tolist(), strict=True)
        ]
        return random.permutation(np.concatenate(drawn))


def _repeat(rows: Array, count: int, random: np.random.Generator) -> Array:
    """Return ``count`` of the rows in random order; the numbers of occurrences of two rows differ by at most one."""
    times = -(-count // len(rows))
    return np.concatenate([random.permutation(rows) for _ in range(times)] or [rows[:0]])[:count]


def _rows_by_part(shards: Shards) -> dict[str, Array]:
    names: list[pa.Array] = []
    for block in shards.blocks:
        ends = pc.split_pattern(block.pair_ids.cast(pa.string()), ":", max_splits=1, reverse=True)
        names.append(pc.list_element(ends, 0))
    encoded = pa.chunked_array(names).combine_chunks().dictionary_encode()
    numbers = encoded.indices.to_numpy()
    return {name: np.flatnonzero(numbers == i) for i, name in enumerate(encoded.dictionary.to_pylist())}
