"""Lines to piece ids with each distinct word encoded once; the ids are exactly those of whole lines.

Where words stand between single spaces, no chunk of the tokenizer reaches over a space (``learn_bpe.untrained``), so
that a line's pieces are its words' pieces in a row. Any other line (odd or doubled white space, or a character that
the normaliser turns into some) is encoded whole. The table of words is emptied when it has grown large, so that
memory stays flat.
"""

from dataclasses import dataclass
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from tokenizers import Tokenizer

Integers = NDArray[np.int64]

ODD_SPACE = (
    r"^$|^ | $|  |[\x00-\x1f\x7f-\xa0\x{1680}\x{180e}\x{2000}-\x{200b}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}\x{feff}]"
)
"""Finds text in which white space may be more than the boundary of two words; wider than any definition of it."""


@dataclass(frozen=True)
class Ragged:
    """Rows of different lengths, end to end in ``ids``."""

    ids: Integers
    lengths: Integers

    @classmethod
    def of(cls, rows: list[list[int]]) -> "Ragged":
        ids = np.fromiter(chain.from_iterable(rows), np.int64)
        return cls(ids, np.fromiter(map(len, rows), np.int64, len(rows)))

    def take(self, rows: Integers) -> "Ragged":
        """These rows in this order; a row may be taken often."""
        starts = np.cumsum(self.lengths) - self.lengths
        lengths = self.lengths[rows]
        shifts = starts[rows] - (np.cumsum(lengths) - lengths)
        return Ragged(self.ids[np.repeat(shifts, lengths) + np.arange(lengths.sum())], lengths)

    def join(self, counts: Integers) -> "Ragged":
        """Make one row of the first ``counts[0]`` rows, one of the next ``counts[1]``, and so on."""
        ends = np.concatenate(([0], np.cumsum(self.lengths)))[np.cumsum(counts)]
        return Ragged(self.ids, np.diff(ends, prepend=0))

    def then(self, other: "Ragged") -> "Ragged":
        """The rows of both."""
        return Ragged(np.concatenate((self.ids, other.ids)), np.concatenate((self.lengths, other.lengths)))


class WordTable:
    """The pieces of each word met so far."""

    def __init__(self, tokenizer: Tokenizer, most_words: int = 1_000_000) -> None:
        self._tokenizer = tokenizer
        self._most_words = most_words
        self._rows: dict[str, int] = {}
        self._pieces = Ragged.of([])
        self._odd = np.zeros(0, np.bool_)

    def encode(self, lines: pa.Array) -> Ragged:
        """Piece ids of each line, without specials."""
        if len(self._rows) > self._most_words:
            self._forget()
        odd = _odd_space(lines)
        plain = np.flatnonzero(~odd)
        split = pc.split_pattern(lines.take(pa.array(plain)), " ")
        counts = pc.list_value_length(split).to_numpy(zero_copy_only=False).astype(np.int64)
        rows = self._rows_of(split.flatten())
        odd[np.repeat(plain, counts)[self._odd[rows]]] = True
        words = self._pieces.take(rows).join(counts)
        if not odd.any():
            return words
        place = np.arange(len(lines))
        place[plain] = np.arange(len(plain))
        place[odd] = len(plain) + np.arange(odd.sum())
        return words.then(self._encode_whole(lines.filter(pa.array(odd)).to_pylist())).take(place)

    def _rows_of(self, words: pa.Array) -> Integers:
        """Row of each word in the table, which learns the words that it lacks."""
        distinct = words.dictionary_encode()
        spelt = distinct.dictionary.to_pylist()
        new = [word for word in spelt if word not in self._rows]
        if new:
            self._rows.update(zip(new, range(len(self._rows), len(self._rows) + len(new)), strict=True))
            self._pieces = self._pieces.then(self._encode_whole(new))
            normalised = [self._tokenizer.normalizer.normalize_str(word).removeprefix(" ") for word in new]
            self._odd = np.concatenate((self._odd, _odd_space(pa.array(normalised, pa.string()))))
        rows: Integers = np.fromiter(map(self._rows.__getitem__, spelt), np.int64, len(spelt))
        occurrences: Integers = distinct.indices.to_numpy()
        return rows[occurrences]

    def _encode_whole(self, lines: list[str]) -> Ragged:
        return Ragged.of([e.ids for e in self._tokenizer.encode_batch_fast(lines, add_special_tokens=False)])

    def _forget(self) -> None:
        self._rows.clear()
        self._pieces = Ragged.of([])
        self._odd = np.zeros(0, np.bool_)


def _odd_space(lines: pa.Array) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = pc.match_substring_regex(lines, ODD_SPACE).to_numpy(zero_copy_only=False)
    return found.copy()
