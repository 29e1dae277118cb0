"""Holds the symbols of all words in one array, one cell for each letter, and merges pairs of symbols.

The first and last cell of a symbol hold its id; the cells between are empty. A symbol covers as many cells as its piece
has letters, so the positions of its neighbours follow from their ids, and memory is two bytes for each letter of text.
Letters are bytes or characters.

The word "lower" (| ends a word, . is empty), before and after the merges ``e r`` to 300 and ``w er`` to 301:

    | l o w e   r   |        | l o w 300 300 |        | l o 301 . 301 |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from tasks.lazy_libraries import NDArray, np, pa, pc

Integers: TypeAlias = "NDArray[np.int64]"
Codes: TypeAlias = "Callable[[pa.Array], tuple[NDArray[np.unsignedinteger], Integers]]"
"""Returns the concatenated letter codes of all words, and the number of letters of each word."""
MAX_CODES = 2 * 0x110000
"""Above any code of a letter."""
SHIFT = 32
"""A pair as one number: ``first << SHIFT | second``."""
CELLS_PER_BLOCK = 1 << 18
"""Cells that are scanned at once."""
_GOLDEN = 0x9E3779B97F4A7C15
_SIEVE_BITS = 20


@dataclass(frozen=True)
class PairOccurrences:
    """Distinct pairs in ascending order, with their frequencies and positions."""

    keys: Integers
    totals: Integers
    offsets: Integers
    """The start of each pair's positions in ``positions``, and the end of the last."""
    positions: Integers

    @classmethod
    def none(cls) -> PairOccurrences:
        nothing = np.zeros(0, np.int64)
        return cls(nothing, nothing, np.zeros(1, np.int64), nothing)

    @classmethod
    def grouped(cls, keys: Integers, weights: Integers, positions: Integers) -> PairOccurrences:
        """Group single occurrences, each with its pair, weight and position."""
        if not len(keys):
            return cls.none()
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        begins = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))
        return cls(
            keys[begins], np.add.reduceat(weights[order], begins), np.append(begins, len(keys)), positions[order]
        )


class SymbolArray:
    """``cell`` holds ids below ``limit``, ``limit`` where a word ends, and ``limit + 1`` where a cell is empty.

    From cell ``bounds[i]`` (ascending) to the next bound all words have the count ``counts[i]``.
    """

    def __init__(self, cell: NDArray[np.unsignedinteger], counts: Integers, bounds: Integers, limit: int) -> None:
        self._cell = cell
        self._counts = counts
        self._bounds = bounds
        self._end = limit
        self._length = np.ones(limit + 2, np.int64)
        self._position_type = np.min_scalar_type(len(cell))

    @classmethod
    def of(
        cls, counts: Iterable[tuple[pa.Array, Integers]], ids: NDArray[np.int64], limit: int, codes_of: Codes
    ) -> SymbolArray:
        """Build the array from batches of distinct words with their counts in descending order.

        ``ids`` maps the code of a letter to its id. All ids are below ``limit``.
        """
        kind = np.min_scalar_type(limit + 1)
        cells = [np.array([limit], kind)]
        numbers: list[Integers] = [np.zeros(0, np.int64)]
        bounds: list[Integers] = [np.zeros(0, np.int64)]
        size = 1
        for words, count in counts:
            codes, lengths = codes_of(words)
            ends = np.cumsum(lengths + 1)
            # One cell between two words marks the end of the first.
            cell = np.full(int(ends[-1]) if len(ends) else 0, limit, kind)
            letters = np.ones(len(cell), np.bool_)
            letters[ends - 1] = False
            cell[letters] = ids.astype(kind)[codes]
            change = np.flatnonzero(np.diff(count, prepend=0))
            cells.append(cell)
            numbers.append(count[change])
            bounds.append((ends - lengths - 1)[change] + size)
            size += len(cell)
        return cls(np.concatenate(cells), np.concatenate(numbers), np.concatenate(bounds), limit)

    def count_pairs(self) -> tuple[Integers, Integers]:
        """Distinct pairs in ascending order and their frequencies."""
        found = [PairOccurrences.none()]
        for positions, keys in self._neighbours():
            found.append(PairOccurrences.grouped(keys, self._weights(positions), keys))
        keys, totals = (np.concatenate([getattr(each, part) for each in found]) for part in ("keys", "totals"))
        every = PairOccurrences.grouped(keys, totals, keys)
        return every.keys, every.totals

    def find_pairs(self, keys: Integers) -> PairOccurrences:
        """The occurrences of these pairs (ascending); the total of a pair without any is 0."""
        sieve = np.zeros(1 << _SIEVE_BITS, np.bool_)
        sieve[_hashed(keys)] = True
        totals = np.zeros(len(keys))
        counts = np.zeros(len(keys), np.int64)
        found = []
        for positions, pairs in self._neighbours():
            likely = sieve[_hashed(pairs)]
            positions = positions[likely]
            pairs = pairs[likely]
            at = np.searchsorted(keys, pairs).clip(max=len(keys) - 1)
            right = keys[at] == pairs
            positions = positions[right]
            at = at[right]
            totals += np.bincount(at, self._weights(positions), len(keys))
            counts += np.bincount(at, minlength=len(keys))
            order = np.argsort(at, kind="stable")
            found.append((at[order].astype(np.int32), positions[order].astype(self._position_type)))
        begins = np.concatenate(([0], np.cumsum(counts)))
        slots = np.empty(begins[-1], self._position_type)
        free = begins[:-1].copy()
        for at, positions in found:
            # The nth position of a pair in this block goes to the pair's nth free slot.
            first = np.searchsorted(at, at)
            slots[free[at] + np.arange(len(at)) - first] = positions
            free += np.bincount(at, minlength=len(keys))
        return PairOccurrences(keys, totals.astype(np.int64), begins, slots)

    def merge_pair(self, a: int, b: int, new: int, positions: Integers) -> tuple[PairOccurrences, PairOccurrences]:
        """Replace each ``a b`` that is still at these positions by ``new``, from left to right.

        Returns the neighbouring pairs that this removes (without positions) and the pairs that it adds.
        """
        cell = self._cell
        length = self._length
        first = np.sort(positions).astype(np.int64)
        first = first[cell[first] == a]
        first = first[cell[first + length[a]] == b]
        if a == b:
            first = without_overlaps(first, int(length[a]))
        second = first + length[a]
        right = second + length[b]
        weights = self._weights(first)
        before = cell[first - 1]
        left = first - length[before]
        joins_left = before < self._end
        joins_right = cell[right] < self._end
        # A pair between two merged positions is removed, and added, once.
        joins_left[1:] &= left[1:] != second[:-1]
        left = left[joins_left]
        weights = np.concatenate((weights[joins_left], weights[joins_right]))
        gone = self._keys(np.concatenate((left, second[joins_right])))
        lost = PairOccurrences.grouped(gone, weights, gone)
        length[new] = length[a] + length[b]
        cell[second - 1] = self._end + 1
        cell[second] = self._end + 1
        cell[first] = new
        cell[right - 1] = new
        made = np.concatenate((left, first[joins_right]))
        return lost, PairOccurrences.grouped(self._keys(made), weights, made.astype(self._position_type))

    def _neighbours(self) -> Iterator[tuple[Integers, Integers]]:
        """All pairs of neighbours, block by block: the position of the first symbol, and the pair."""
        ends = 0
        for begin in range(0, len(self._cell), CELLS_PER_BLOCK):
            part = self._cell[begin : begin + CELLS_PER_BLOCK]
            positions = np.flatnonzero(part < self._end)
            several = self._length[part[positions]] > 1
            # Longer symbols have their id in two cells, so every second such cell is the last cell of a symbol.
            count = np.cumsum(several) + ends
            ends = int(count[-1]) % 2 if len(count) else ends
            positions = positions[~several | (count % 2 == 1)] + begin
            positions = positions[self._cell[self._next_symbol(positions)] < self._end]
            yield positions, self._keys(positions)

    def _next_symbol(self, positions: Integers) -> Integers:
        after: Integers = positions + self._length[self._cell[positions]]
        return after

    def _keys(self, positions: Integers) -> Integers:
        return (self._cell[positions].astype(np.int64) << SHIFT) | self._cell[self._next_symbol(positions)]

    def _weights(self, positions: Integers) -> Integers:
        weights: Integers = self._counts[np.searchsorted(self._bounds, positions, side="right") - 1]
        return weights


def without_overlaps(positions: Integers, length: int) -> Integers:
    """Every other position of each run of overlapping pairs, such as the three pairs ``a a`` in ``aaaa``.

    ``positions`` ascend; ``length`` is the number of cells of ``a``.
    """
    follows = np.concatenate(([False], positions[:-1] + length == positions[1:]))
    index = np.arange(len(positions))
    start = np.maximum.accumulate(np.where(follows, 0, index))
    odd: Integers = positions[(index - start) % 2 == 0]
    return odd


def byte_codes(words: pa.Array) -> tuple[NDArray[np.unsignedinteger], Integers]:
    """The concatenated bytes of all words, and the number of bytes of each word."""
    text = words.cast(pa.large_binary())
    _, offsets, data = text.buffers()
    begin, end = np.frombuffer(offsets, np.int64)[[text.offset, text.offset + len(text)]]
    return np.frombuffer(data or b"", np.uint8)[begin:end], pc.binary_length(text).to_numpy()


def character_codes(words: pa.Array) -> tuple[NDArray[np.unsignedinteger], Integers]:
    """Twice the code point of each character, plus one if it is the last of its word; and the lengths of the words."""
    lengths = pc.utf8_length(words).to_numpy().astype(np.int64)
    codes = 2 * np.frombuffer("".join(words.to_pylist()).encode("utf-32-le"), np.uint32)
    codes[np.cumsum(lengths) - 1] += 1
    return codes, lengths


def _hashed(keys: Integers) -> NDArray[np.uint64]:
    hashed: NDArray[np.uint64] = (keys.astype(np.uint64) * np.uint64(_GOLDEN)) >> np.uint64(64 - _SIEVE_BITS)
    return hashed
