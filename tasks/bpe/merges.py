"""The merges of a byte-level BPE vocabulary (Sennrich et al. 2016) from how often each word occurs.

In come distinct chunks of text with their counts; out come vocabulary and merges, those that
``tokenizers.trainers.BpeTrainer`` finds over the running text. That one takes no counts and reads every line again.

A merge looks at the places of one pair and at what stands beside them, however many chunks there are
(``tasks.bpe.symbols``). Only pairs that occur often enough to be merged soon are kept with their places: the others are
parked as two numbers each, until the commonest pair left is no commoner than they are. How text is cut is not known
here.
"""

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from tasks.bpe.symbols import SHIFT, Integers, PairOccurrences, SymbolArray

THRESHOLD_RATIO = 8
"""How many times rarer than the commonest pair left a pair may be to be kept with its places."""
PROGRESS_MERGES = 500


@dataclass(frozen=True)
class LearnedMerges:
    """``vocabulary`` gives each piece its id; ``merges`` are in the order in which they are to be done."""

    vocabulary: dict[str, int]
    merges: list[tuple[str, str]]


def _silent(done: int, total: int) -> None: ...


def learn_merges(
    counts: Iterable[pl.DataFrame],
    size: int,
    min_frequency: int,
    first: Sequence[str],
    letters: Mapping[str, int],
    on_progress: Callable[[int, int], None] = _silent,
) -> LearnedMerges:
    """At most ``size`` pieces: ``first`` (specials and the alphabet), then the commonest pair merged, again and again.

    ``counts`` are distinct chunks and how often each occurs (``chunk`` and ``count``), in as many frames as you like;
    ``letters`` are the pieces of a single byte, with it. Of equally common pairs the one with the lower ids goes first.
    Ends early where no pair occurs ``min_frequency`` times. ``say`` hears of pieces found and wanted.
    """
    pieces = list(first)
    ids = {piece: number for number, piece in enumerate(pieces)}
    most = max(size, len(pieces))
    of_byte = np.full(256, most)
    for piece, byte in letters.items():
        of_byte[byte] = ids[piece]
    frames = (frame.sort("count", descending=True) for frame in counts)
    cells = SymbolArray.of(((frame["chunk"].to_arrow(), frame["count"].to_numpy()) for frame in frames), of_byte, most)
    merges: list[tuple[str, str]] = []
    queue = MergeQueue(cells, len(pieces))
    while len(ids) < size and (offer := queue.pop_most_frequent()):
        count, pair, where = offer
        if count < min_frequency:
            break
        a, b = pair >> SHIFT, pair & ((1 << SHIFT) - 1)
        merges.append((pieces[a], pieces[b]))
        # A special that is spelt out in the text has its id already.
        new = ids.setdefault(pieces[a] + pieces[b], len(pieces))
        if new == len(pieces):
            pieces.append(pieces[a] + pieces[b])
        queue.update(*cells.merge_pair(a, b, new, where))
        if len(merges) % PROGRESS_MERGES == 0:
            on_progress(len(ids), size)
    return LearnedMerges(ids, merges)


class MergeQueue:
    """Pairs that may be merged, commonest first, then by their ids; exactly as if all were kept.

    A pair is offered, with its places, once: by the words as they come or by the merge that made the later of its
    symbols. From then on it only becomes rarer, so that one with fewer than ``_floor`` occurrences may wait, parked,
    until what is left is no commoner.
    """

    def __init__(self, cells: SymbolArray, alphabet: int) -> None:
        self._cells = cells
        self._frequency: dict[int, int] = {}
        self._places: dict[int, Integers] = {}
        self._queue: list[tuple[int, int]] = []
        """Occurrences when last looked at, negative, and the pair."""
        keys, totals = cells.count_pairs(alphabet)
        self._deferred = [(keys, totals)]
        """Pairs, and how often each occurred when it was offered."""
        self._threshold = 1 + int(totals.max(initial=0))

    def pop_most_frequent(self) -> tuple[int, int, Integers] | None:
        """How often it occurs, the pair, and its places; it is offered no more."""
        while True:
            top = -self._queue[0][0] if self._queue else 0
            if top < self._threshold and self._deferred:
                self._lower_threshold(top)
            elif not self._queue:
                return None
            else:
                count, pair = heapq.heappop(self._queue)
                if -count == self._frequency[pair]:
                    return -count, pair, self._places.pop(pair)
                self._push(pair)

    def update(self, lost: PairOccurrences, gained: PairOccurrences) -> None:
        """A merge took pairs away and made others."""
        frequency = self._frequency
        for key, total in zip(lost.keys.tolist(), lost.totals.tolist(), strict=True):
            if key in frequency:
                frequency[key] -= total
        kept = gained.totals >= self._threshold
        if not kept.all():
            self._deferred.append((gained.keys[~kept], gained.totals[~kept]))
        for at in np.flatnonzero(kept).tolist():
            self._keep(gained, at)

    def _lower_threshold(self, top: int) -> None:
        """Let the floor fall, and keep what is not below it any more."""
        keys, totals = (np.concatenate(part) for part in zip(*self._deferred, strict=True))
        self._threshold = max(max(top, int(totals.max(initial=0))) // THRESHOLD_RATIO, 1)
        out = totals >= self._threshold
        self._deferred = [(keys[~out], totals[~out])] if not out.all() else []
        standing = self._cells.find_pairs(np.sort(keys[out])) if out.any() else PairOccurrences.none()
        for at in np.flatnonzero(standing.totals).tolist():
            self._keep(standing, at)

    def _keep(self, pairs: PairOccurrences, at: int) -> None:
        pair = int(pairs.keys[at])
        self._frequency[pair], self._places[pair] = int(pairs.totals[at]), pairs.positions_of(at)
        self._push(pair)

    def _push(self, pair: int) -> None:
        if self._frequency[pair] > 0:
            heapq.heappush(self._queue, (-self._frequency[pair], pair))
        else:
            del self._frequency[pair], self._places[pair]
