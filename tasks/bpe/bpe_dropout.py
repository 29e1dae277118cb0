"""BPE-dropout (Provilkov et al., 2020): another segmentation of the same text for every drawing.

Plain BPE applies the merge with the lowest rank until none is left. With dropout each possible merge is left out of a
step with probability ``p``, drawn again for every step, and encoding ends at a step without a merge. p = 0 gives the
plain pieces, p = 1 the bytes. All chunks of a block take a step at once, as arrays.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from model.lazy_import import lazy_import
from tasks.bpe.symbols import SHIFT, Integers
from tasks.bpe.word_cache import FIRST, Ragged, WordCache
from tasks.lazy_libraries import np

if TYPE_CHECKING:
    import tokenizers
    from numpy.typing import NDArray
    from tokenizers import Tokenizer
else:
    tokenizers = lazy_import("tokenizers")

NO_MERGE = 2**63 - 1
CELLS_PER_BLOCK = 1 << 20
"""Bytes that are segmented at once, a limit of memory."""


class ByteCache(WordCache):
    """Lines as the ids of their bytes, before any merge; ``FIRST`` marks the first byte of each chunk (a word, a
    number, punctuation), which no merge joins to the byte before."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        form = json.loads(tokenizer.to_str())
        form["model"]["merges"] = []
        unmerged = tokenizers.Tokenizer.from_str(json.dumps(form))
        unmerged.encode_special_tokens = tokenizer.encode_special_tokens
        super().__init__(unmerged)

    def _encode_block(self, lines: list[str]) -> Ragged:
        rows = []
        for encoding in self._tokenizer.encode_batch(lines, add_special_tokens=False):
            ids = np.array(encoding.ids, np.int64)
            chunks = np.array(encoding.word_ids, np.int64)
            rows.append((ids + FIRST * (np.diff(chunks, prepend=-1) != 0)).tolist())
        return Ragged.of(rows)


@dataclass(frozen=True)
class Merges:
    """The merges of a vocabulary, by pair (ascending)."""

    pairs: Integers
    """``first << SHIFT | second``."""
    ranks: Integers
    merged: Integers
    """The piece that each rank makes."""

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Merges:
        model = json.loads(tokenizer.to_str())["model"]
        ids = model["vocab"]
        merges = model["merges"]
        pairs = np.array([ids[a] << SHIFT | ids[b] for a, b in merges], np.int64)
        order = np.argsort(pairs)
        return cls(pairs[order], order, np.array([ids[a + b] for a, b in merges], np.int64))

    def rank(self, first: Integers, second: Integers) -> Integers:
        """The rank of each pair, NO_MERGE for a pair that never merges."""
        if not len(self.pairs):
            return np.full(len(first), NO_MERGE)
        pairs = first << SHIFT | second
        at = np.searchsorted(self.pairs, pairs).clip(max=len(self.pairs) - 1)
        return np.where(self.pairs[at] == pairs, self.ranks[at], NO_MERGE)


def segment(marked: Ragged, merges: Merges, p: float, random: np.random.Generator) -> Ragged:
    """One drawn segmentation of each row of a ``ByteCache``."""
    ends = np.cumsum(marked.lengths)
    begins = ends - marked.lengths
    done = 0
    parts = []
    while done < len(ends):
        upto = max(int(np.searchsorted(ends, begins[done] + CELLS_PER_BLOCK, side="right")), done + 1)
        ids = marked.ids[begins[done] : ends[upto - 1]]
        parts.append(_segment_block(Ragged(ids, marked.lengths[done:upto]), merges, p, random))
        done = upto
    if not parts:
        return marked
    return Ragged(np.concatenate([part.ids for part in parts]), np.concatenate([part.lengths for part in parts]))


def _segment_block(marked: Ragged, merges: Merges, p: float, random: np.random.Generator) -> Ragged:
    pieces = (marked.ids & (FIRST - 1)).astype(np.int64)
    kept = np.ones(len(pieces), np.bool_)
    # The chunks that can still merge: the place of each symbol in ``pieces``, the symbol, and the rank of the merge
    # with the symbol after it.
    place = np.arange(len(pieces))
    symbol = pieces.copy()
    first = marked.ids >= FIRST
    rank = merges.rank(symbol, np.roll(symbol, -1))
    rank[np.roll(first, -1)] = NO_MERGE
    while len(place):
        chunk = np.cumsum(first) - 1
        drawn = np.where(random.random(len(rank)) < p, NO_MERGE, rank) if p else rank
        best = np.minimum.reduceat(drawn, np.flatnonzero(first))
        merging = best < NO_MERGE
        # Of several places with the same merge, a step takes the leftmost, as the library does.
        at = np.flatnonzero((drawn == best[chunk]) & merging[chunk])
        at = at[np.diff(chunk[at], prepend=-1) != 0]
        made = merges.merged[rank[at]]
        symbol[at] = pieces[place[at]] = made
        kept[place[at + 1]] = False
        remains = merging[chunk]
        remains[at + 1] = False
        # A symbol moves left by the number of those removed before it.
        at = (np.cumsum(remains) - 1)[at]
        place = place[remains]
        symbol = symbol[remains]
        first = first[remains]
        rank = rank[remains]
        _rerank(rank, symbol, first, at, merges)
        before = at[~first[at]] - 1
        _rerank(rank, symbol, first, before, merges)
    ends = np.concatenate(([0], np.cumsum(kept)))[np.cumsum(marked.lengths)]
    return Ragged(pieces[kept].astype(np.int32), np.diff(ends, prepend=0))


def _rerank(rank: Integers, symbol: Integers, first: NDArray[np.bool_], at: Integers, merges: Merges) -> None:
    """Look up the merges of these symbols with those after them."""
    after = (at + 1) % max(len(symbol), 1)
    rank[at] = np.where(first[after], NO_MERGE, merges.rank(symbol[at], symbol[after]))
