"""Learns the merges of a BPE vocabulary (Sennrich et al. 2016) from chunk counts.

``tokenizers.trainers.BpeTrainer``, which takes no counts, gives the same result on the running text. A merge visits
only the positions of its pair and their neighbours (``tasks.bpe.symbols``). Only pairs that are frequent enough to be
merged soon keep their positions; the other pairs are deferred as two numbers each.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence

from tasks.bpe.symbols import MAX_CODES, SHIFT, Codes, Integers, PairOccurrences, SymbolArray, byte_codes
from tasks.lazy_libraries import np, pl

THRESHOLD_RATIO = 8
"""A pair is kept with its positions if it is at most this many times rarer than the most frequent pair left."""
PROGRESS_MERGES = 500


def learn_merges(
    counts: Iterable[pl.DataFrame],
    size: int,
    min_frequency: int,
    first: Sequence[str],
    letters: Mapping[str, int],
    on_progress: Callable[[int, int], None] = lambda *_: None,
    codes_of: Codes = byte_codes,
) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Learn at most ``size`` pieces: ``first`` (specials and the alphabet), then merges of the most frequent pair.

    Returns the ids of the pieces, and the merges in the order of application.

    ``counts`` are any number of frames of distinct chunks with their counts (columns ``chunk`` and ``count``).
    ``letters`` maps each piece of one letter to the letter's code. ``codes_of`` returns the codes of the chunks'
    letters, which are bytes or characters. A letter without a piece ends a word. If pairs are equally frequent, the
    pair with the lower ids is merged first. Stops when no pair occurs ``min_frequency`` times. Calls
    ``on_progress(pieces, size)`` every PROGRESS_MERGES merges.
    """
    pieces = list(first)
    ids = {piece: number for number, piece in enumerate(pieces)}
    limit = max(size, len(pieces))
    of_code = np.full(MAX_CODES, limit)
    for piece, code in letters.items():
        of_code[code] = ids[piece]
    frames = (frame.sort("count", descending=True) for frame in counts)
    words = ((frame["chunk"].to_arrow(), frame["count"].to_numpy()) for frame in frames)
    symbols = SymbolArray.of(words, of_code, limit, codes_of)
    merges: list[tuple[str, str]] = []
    queue = MergeQueue(symbols)
    while len(ids) < size and (popped := queue.pop_most_frequent()):
        count, pair, positions = popped
        if count < min_frequency:
            break
        a = pair >> SHIFT
        b = pair & ((1 << SHIFT) - 1)
        merges.append((pieces[a], pieces[b]))
        # A special token that the text spells out has an id already.
        new = ids.setdefault(pieces[a] + pieces[b], len(pieces))
        if new == len(pieces):
            pieces.append(pieces[a] + pieces[b])
        queue.update(*symbols.merge_pair(a, b, new, positions))
        if len(merges) % PROGRESS_MERGES == 0:
            on_progress(len(ids), size)
    return ids, merges


class MergeQueue:
    """A priority queue of pairs by frequency, then by ids; pairs below a threshold wait without their positions.

    All occurrences of a pair exist at the start or after the merge that made the newer of its symbols. Afterwards the
    pair only becomes rarer, so a pair below ``_threshold`` can be deferred until no queued pair is more frequent.
    """

    def __init__(self, symbols: SymbolArray) -> None:
        self._symbols = symbols
        self._frequency: dict[int, int] = {}
        self._positions: dict[int, Integers] = {}
        self._queue: list[tuple[int, int]] = []
        """Negative frequency when last pushed, and the pair."""
        keys, totals = symbols.count_pairs()
        self._deferred = [(keys, totals)]
        """Pairs, and their frequencies when they were deferred."""
        self._threshold = 1 + int(totals.max(initial=0))

    def pop_most_frequent(self) -> tuple[int, int, Integers] | None:
        """Remove and return the most frequent pair: its frequency, the pair and its positions; None if none is left."""
        while True:
            top = -self._queue[0][0] if self._queue else 0
            if top < self._threshold and self._deferred:
                self._lower_threshold(top)
            elif not self._queue:
                return None
            else:
                count, pair = heapq.heappop(self._queue)
                if -count == self._frequency[pair]:
                    return -count, pair, self._positions.pop(pair)
                self._push(pair)

    def update(self, lost: PairOccurrences, gained: PairOccurrences) -> None:
        """Apply the pairs that a merge removed and added."""
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
        """Lower the threshold and queue the deferred pairs that reach it."""
        keys, totals = (np.concatenate(part) for part in zip(*self._deferred, strict=True))
        self._threshold = max(max(top, int(totals.max(initial=0))) // THRESHOLD_RATIO, 1)
        reached = totals >= self._threshold
        self._deferred = [(keys[~reached], totals[~reached])] if not reached.all() else []
        found = self._symbols.find_pairs(np.sort(keys[reached])) if reached.any() else PairOccurrences.none()
        for at in np.flatnonzero(found.totals).tolist():
            self._keep(found, at)

    def _keep(self, pairs: PairOccurrences, at: int) -> None:
        pair = int(pairs.keys[at])
        self._frequency[pair] = int(pairs.totals[at])
        self._positions[pair] = pairs.positions[pairs.offsets[at] : pairs.offsets[at + 1]].copy()
        self._push(pair)

    def _push(self, pair: int) -> None:
        if self._frequency[pair] > 0:
            heapq.heappush(self._queue, (-self._frequency[pair], pair))
        else:
            del self._frequency[pair], self._positions[pair]
