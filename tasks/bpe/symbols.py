"""All words' symbols end to end, a cell for each byte: what a BPE learner merges in.

A symbol's first and last cell hold its id, the cells between nothing. As a symbol covers as many cells as its piece
has bytes, its neighbours' places follow from their ids, and two bytes for each byte of text are all that is kept. Which
pair is merged when, and what pieces are called, is not known here.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Integers = NDArray[np.int64]

SHIFT = 32
"""A pair as one number: its first symbol above so many bits, its second below."""
CELLS_PER_BLOCK = 1 << 18
"""Cells that are looked at in one go."""
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_SIEVE_BITS = 20


@dataclass(frozen=True)
class PairOccurrences:
    """Distinct pairs, rising, how often each occurs, and where."""

    keys: Integers
    totals: Integers
    offsets: Integers
    """Where in ``where`` the places of a pair begin; one more, where the last ones end."""
    positions: Integers

    @classmethod
    def none(cls) -> "PairOccurrences":
        nothing = np.zeros(0, np.int64)
        return cls(nothing, nothing, np.zeros(1, np.int64), nothing)

    @classmethod
    def grouped(cls, keys: Integers, weights: Integers, positions: Integers) -> "PairOccurrences":
        """From a pair, its weight and its place each."""
        if not len(keys):
            return cls.none()
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        begins = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))
        return cls(
            keys[begins], np.add.reduceat(weights[order], begins), np.append(begins, len(keys)), positions[order]
        )

    def positions_of(self, at: int) -> Integers:
        """Places of the pair with this index, in memory of their own."""
        return self.positions[self.offsets[at] : self.offsets[at + 1]].copy()


class SymbolArray:
    """``cell``: ids, with one that ends words and one that is nothing (the two highest) between them.

    ``bounds`` rise and say from which cell on all words have the count of the same index in ``counts``.
    """

    def __init__(self, cell: NDArray[np.unsignedinteger], counts: Integers, bounds: Integers, most: int) -> None:
        self._cell, self._counts, self._bounds, self._end = cell, counts, bounds, most
        self._length = np.ones(most + 2, np.int64)
        self._place = np.min_scalar_type(len(cell))

    @classmethod
    def of(cls, counts: Iterable[tuple[pa.Array, Integers]], ids: NDArray[np.int64], most: int) -> "SymbolArray":
        """Of distinct words and their counts, commonest first in each batch, with the id of each byte; ids are below
        ``most``."""
        kind = np.min_scalar_type(most + 1)
        cells, numbers, bounds, size = [np.array([most], kind)], [], [], 1
        for words, count in counts:
            text = words.cast(pa.large_binary())
            lengths = pc.binary_length(text).to_numpy()
            ends = np.cumsum(lengths + 1)
            # Where a word ends a cell is left between it and the next.
            cell = np.full(int(ends[-1]) if len(ends) else 0, most, kind)
            letters = np.ones(len(cell), np.bool_)
            letters[ends - 1] = False
            cell[letters] = ids.astype(kind)[_bytes(text)]
            change = np.flatnonzero(np.diff(count, prepend=0))
            cells.append(cell)
            numbers.append(count[change])
            bounds.append((ends - lengths - 1)[change] + size)
            size += len(cell)
        nothing = np.zeros(0, np.int64)
        return cls(np.concatenate(cells), np.concatenate([nothing, *numbers]), np.concatenate([nothing, *bounds]), most)

    def count_pairs(self, alphabet: int) -> tuple[Integers, Integers]:
        """Distinct pairs, rising, and how often they occur, before anything is merged: ids are below ``alphabet``."""
        totals = np.zeros(alphabet**2)
        for places, keys in self._neighbours():
            dense = (keys >> SHIFT) * alphabet + (keys & ((1 << SHIFT) - 1))
            totals += np.bincount(dense, self._weights(places), alphabet**2)
        found = np.flatnonzero(totals)
        return ((found // alphabet) << SHIFT) | (found % alphabet), totals[found].astype(np.int64)

    def find_pairs(self, keys: Integers) -> PairOccurrences:
        """These pairs (rising) as they stand; of those that stand nowhere the total is 0."""
        sieve = np.zeros(1 << _SIEVE_BITS, np.bool_)
        sieve[_hashed(keys)] = True
        totals, counts = np.zeros(len(keys)), np.zeros(len(keys), np.int64)
        found = []
        for places, pairs in self._neighbours():
            likely = sieve[_hashed(pairs)]
            places, pairs = places[likely], pairs[likely]
            at = np.searchsorted(keys, pairs).clip(max=len(keys) - 1)
            right = keys[at] == pairs
            places, at = places[right], at[right]
            totals += np.bincount(at, self._weights(places), len(keys))
            counts += np.bincount(at, minlength=len(keys))
            order = np.argsort(at, kind="stable")
            found.append((at[order].astype(np.int32), places[order].astype(self._place)))
        begins = np.concatenate(([0], np.cumsum(counts)))
        where, free = np.empty(begins[-1], self._place), begins[:-1].copy()
        for at, places in found:
            # The nth place of a pair in this slice goes to the nth free one of the pair.
            first = np.searchsorted(at, at)
            where[free[at] + np.arange(len(at)) - first] = places
            free += np.bincount(at, minlength=len(keys))
        return PairOccurrences(keys, totals.astype(np.int64), begins, where)

    def merge_pair(self, a: int, b: int, new: int, places: Integers) -> tuple[PairOccurrences, PairOccurrences]:
        """Make ``new`` of each ``a b`` at these places, if it still stands there, from left to right.

        The pairs with neighbours that this takes away (not where they were) and those that it makes.
        """
        cell, length = self._cell, self._length
        first = np.sort(places).astype(np.int64)
        first = first[cell[first] == a]
        first = first[cell[first + length[a]] == b]
        if a == b:
            first = without_overlaps(first, int(length[a]))
        second = first + length[a]
        right = second + length[b]
        weights = self._weights(first)
        before = cell[first - 1]
        left, joins_left, joins_right = first - length[before], before < self._end, cell[right] < self._end
        # A pair between two places that both merge is taken away, and made, once.
        joins_left[1:] &= left[1:] != second[:-1]
        left = left[joins_left]
        weights = np.concatenate((weights[joins_left], weights[joins_right]))
        gone = self._keys(np.concatenate((left, second[joins_right])))
        lost = PairOccurrences.grouped(gone, weights, gone)
        length[new] = length[a] + length[b]
        cell[second - 1], cell[second] = self._end + 1, self._end + 1
        cell[first], cell[right - 1] = new, new
        made = np.concatenate((left, first[joins_right]))
        return lost, PairOccurrences.grouped(self._keys(made), weights, made.astype(self._place))

    def _neighbours(self) -> Iterator[tuple[Integers, Integers]]:
        """Every pair of neighbours, so many cells at once: the place of its first symbol, and the pair."""
        ends = 0
        for begin in range(0, len(self._cell), CELLS_PER_BLOCK):
            part = self._cell[begin : begin + CELLS_PER_BLOCK]
            places = np.flatnonzero(part < self._end)
            several = self._length[part[places]] > 1
            # Of the cells of longer symbols every other one is a last one.
            count = np.cumsum(several) + ends
            ends = int(count[-1]) % 2 if len(count) else ends
            places = places[~several | (count % 2 == 1)] + begin
            places = places[self._cell[self._next_symbol(places)] < self._end]
            yield places, self._keys(places)

    def _next_symbol(self, places: Integers) -> Integers:
        after: Integers = places + self._length[self._cell[places]]
        return after

    def _keys(self, places: Integers) -> Integers:
        return (self._cell[places].astype(np.int64) << SHIFT) | self._cell[self._next_symbol(places)]

    def _weights(self, places: Integers) -> Integers:
        weights: Integers = self._counts[np.searchsorted(self._bounds, places, side="right") - 1]
        return weights


def without_overlaps(places: Integers, length: int) -> Integers:
    """Of runs such as the three pairs in ``aaaa`` the first, third … (rising ``places`` of ``a a``, so many cells
    each ``a``)."""
    if len(places) < 2:
        return places
    follows = np.concatenate(([False], places[:-1] + length == places[1:]))
    index = np.arange(len(places))
    start = np.maximum.accumulate(np.where(follows, 0, index))
    odd: Integers = places[(index - start) % 2 == 0]
    return odd


def _bytes(text: pa.Array) -> NDArray[np.uint8]:
    _, offsets, data = text.buffers()
    begin, end = np.frombuffer(offsets, np.int64)[[text.offset, text.offset + len(text)]]
    return np.frombuffer(data or b"", np.uint8)[begin:end]


def _hashed(keys: Integers) -> NDArray[np.uint64]:
    hashed: NDArray[np.uint64] = (keys.astype(np.uint64) * _GOLDEN) >> np.uint64(64 - _SIEVE_BITS)
    return hashed
