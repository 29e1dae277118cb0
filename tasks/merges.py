"""The merges of a byte-level BPE vocabulary (Sennrich et al. 2016) from how often each word occurs.

In come distinct words, spelt in the tokenizer's alphabet, with their counts; out come vocabulary and merges, those that
``tokenizers.trainers.BpeTrainer`` finds over the running text. That one takes no counts and reads every line again.

All words lie end to end in arrays, each symbol linked to its neighbours. A merge looks at the places of one pair and
at what stands beside them, however many words there are. How text becomes words is not known here.
"""

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]

NONE = -1
"""No neighbour; no symbol any more."""
SHIFT = 32
"""A pair as one number: its first symbol above so many bits, its second below."""
PROGRESS_MERGES = 500


@dataclass(frozen=True)
class Learnt:
    """``vocabulary`` gives each piece its id; ``merges`` are in the order in which they are to be done."""

    vocabulary: dict[str, int]
    merges: list[tuple[str, str]]


def _silent(done: int, total: int) -> None: ...


def learn_merges(
    counts: Mapping[str, int],
    size: int,
    min_frequency: int,
    first: Sequence[str],
    say: Callable[[int, int], None] = _silent,
) -> Learnt:
    """At most ``size`` pieces: ``first`` (specials and the alphabet), then the commonest pair merged, again and again.

    Of equally common pairs the one with the lower ids goes first. Ends early where no pair occurs ``min_frequency``
    times. Every character of the words must be among ``first``. ``say`` hears of pieces found and wanted.
    """
    pieces = list(first)
    ids = {piece: number for number, piece in enumerate(pieces)}
    symbols = Symbols.of(counts, ids)
    merges: list[tuple[str, str]] = []
    frequency: dict[int, int] = {}
    places: list[Integers] = []
    queue: list[tuple[int, int, int]] = []

    def offer(pairs: dict[int, Integers]) -> None:
        for pair, where in pairs.items():
            if frequency[pair] > 0:
                heapq.heappush(queue, (-frequency[pair], pair, len(places)))
                places.append(where)

    keys, totals, found = grouped(*symbols.pairs())
    frequency.update(zip(keys, totals, strict=True))
    offer(dict(zip(keys, found, strict=True)))
    while len(ids) < size and queue:
        count, pair, number = heapq.heappop(queue)
        if -count != frequency[pair]:
            if frequency[pair] > 0:
                heapq.heappush(queue, (-frequency[pair], pair, number))
            continue
        if -count < min_frequency:
            break
        a, b = pair >> SHIFT, pair & ((1 << SHIFT) - 1)
        merges.append((pieces[a], pieces[b]))
        # The same piece can come about in two ways; it is one entry then.
        new = ids.setdefault(pieces[a] + pieces[b], len(pieces))
        if new == len(pieces):
            pieces.append(pieces[a] + pieces[b])
        lost, gained = symbols.merge(a, b, new, places[number])
        places[number] = places[0][:0]
        for key, total in zip(*grouped(*lost)[:2], strict=True):
            frequency[key] -= total
        keys, totals, found = grouped(*gained)
        for key, total in zip(keys, totals, strict=True):
            frequency[key] = frequency.get(key, 0) + total
        offer(dict(zip(keys, found, strict=True)))
        if len(merges) % PROGRESS_MERGES == 0:
            say(len(ids), size)
    return Learnt(ids, merges)


class Symbols:
    """The words' symbols end to end, each with its neighbours and the count of its word."""

    def __init__(self, symbol: Integers, weight: Integers, starts: Integers) -> None:
        self.symbol, self.weight = symbol, weight
        size = len(symbol)
        self.before, self.after = np.arange(size) - 1, np.arange(size) + 1
        self.before[starts] = NONE
        self.after[starts[1:] - 1] = NONE
        self.after[size - 1 :] = NONE
        self._marked = np.zeros(size, np.bool_)

    @classmethod
    def of(cls, counts: Mapping[str, int], ids: Mapping[str, int]) -> "Symbols":
        words = [word for word in counts if word]
        lengths = np.fromiter(map(len, words), np.int64, len(words))
        points = np.frombuffer("".join(words).encode("utf-32-le"), np.uint32)
        table = np.full(int(points.max(initial=0)) + 1, NONE, np.int64)
        for piece, number in ids.items():
            if len(piece) == 1 and ord(piece) < len(table):
                table[ord(piece)] = number
        weights = np.fromiter((counts[word] for word in words), np.int64, len(words))
        return cls(table[points], np.repeat(weights, lengths), np.cumsum(lengths) - lengths)

    def pairs(self) -> tuple[Integers, Integers, Integers]:
        """Every pair of neighbours: as a number, its weight and the place of its first symbol."""
        return self._pairs_at(np.flatnonzero(self.after != NONE))

    def merge(
        self, a: int, b: int, new: int, places: Integers
    ) -> tuple[tuple[Integers, Integers, Integers], tuple[Integers, Integers, Integers]]:
        """Make ``new`` of each ``a b`` at these places, if it still stands there, from left to right.

        The pairs with neighbours that this takes away and those that it makes, as ``pairs`` gives them.
        """
        after, before, symbol, marked = self.after, self.before, self.symbol, self._marked
        second = after[places]
        stands = (symbol[places] == a) & (second != NONE) & (symbol[second] == b)
        first = places[stands]
        if a == b:
            first = every_other(np.sort(first), after)
        second = after[first]
        left, right = before[first], after[second]
        # A pair between two places that both merge is taken away, and made, once.
        marked[second] = True
        left = left[(left != NONE) & ~marked[left]]
        marked[second] = False
        joined = right != NONE
        lost = self._pairs_at(np.concatenate((left, second[joined])))
        symbol[first], symbol[second] = new, NONE
        after[first] = right
        before[right[joined]] = first[joined]
        return lost, self._pairs_at(np.concatenate((left, first[joined])))

    def _pairs_at(self, first: Integers) -> tuple[Integers, Integers, Integers]:
        keys = (self.symbol[first] << SHIFT) | self.symbol[self.after[first]]
        return keys, self.weight[first], first


def every_other(places: Integers, after: Integers) -> Integers:
    """Of runs such as the three pairs in ``aaaa`` the first, third … (rising ``places`` of ``a a``)."""
    if len(places) < 2:
        return places
    follows = np.concatenate(([False], after[places[:-1]] == places[1:]))
    index = np.arange(len(places))
    start = np.maximum.accumulate(np.where(follows, 0, index))
    odd: Integers = places[(index - start) % 2 == 0]
    return odd


def grouped(keys: Integers, weights: Integers, places: Integers) -> tuple[list[int], list[int], list[Integers]]:
    """Distinct keys, rising, with the sum of their weights and their places."""
    if not len(keys):
        return [], [], []
    order = np.argsort(keys, kind="stable")
    keys, places = keys[order], places[order]
    begins = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))
    totals = np.add.reduceat(weights[order], begins)
    bounds = [*begins.tolist(), len(keys)]
    return keys[begins].tolist(), totals.tolist(), [places[b:e] for b, e in pairwise(bounds)]
