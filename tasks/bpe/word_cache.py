"""Lines to piece ids with each distinct word looked at once; the ids are exactly those of whole lines.

Where words stand between single spaces, no chunk of the tokenizer reaches over a space
(``learn_bpe.untrained_tokenizer``), so that a line's pieces are its words' pieces in a row. Any other line (odd or
doubled white space, or a character that the normaliser turns into some) is taken whole. The table of words is emptied
when it has grown large, so that memory stays flat.
"""

import pickle
import sys
from dataclasses import dataclass
from functools import cache
from itertools import chain, islice

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

    def concat(self, other: "Ragged") -> "Ragged":
        """The rows of both."""
        return Ragged(np.concatenate((self.ids, other.ids)), np.concatenate((self.lengths, other.lengths)))


class WordSplitter:
    """Tells apart the words of lines as a tokenizer would."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._odd = "|".join(
            [ODD_SPACE, *(rf"\x{{{ord(c):x}}}" for c in characters_made_space(pickle.dumps(tokenizer.normalizer)))]
        )

    def split(self, lines: pa.Array) -> tuple[NDArray[np.bool_], pa.Array, Integers]:
        """Which lines are to be taken whole; of the others all words in a row, and how many each line has."""
        whole: NDArray[np.bool_] = pc.match_substring_regex(lines, self._odd).to_numpy(zero_copy_only=False).copy()
        split = pc.split_pattern(lines.filter(pa.array(~whole)) if whole.any() else lines, " ")
        counts = pc.list_value_length(split).to_numpy(zero_copy_only=False).astype(np.int64)
        return whole, split.flatten(), counts


@cache
def characters_made_space(normaliser: bytes) -> tuple[str, ...]:
    """Characters that a (pickled) normaliser turns into white space, or into more with some of it (``¨`` by NFKC).

    No sequence of characters becomes what none of them does.
    """
    normalise = pickle.loads(normaliser).normalize_str
    everything = "".join(map(chr, chain(range(0x21, 0xD800), range(0xE000, sys.maxunicode + 1))))
    if normalise(everything).removeprefix(" ") == everything:
        return ()
    given = [c for c in everything if not c.isspace()]
    made = normalise("\n".join(given)).removeprefix(" ")
    return tuple(c for c, text in zip(given, made.split("\n"), strict=True) if any(map(str.isspace, text)))


class WordCache:
    """The pieces of each word met so far."""

    def __init__(self, tokenizer: Tokenizer, most_words: int = 1_000_000) -> None:
        self._tokenizer, self._splitter = tokenizer, WordSplitter(tokenizer)
        self._most_words = most_words
        self._numbers: dict[str, int] = {}
        self._pieces = Ragged.of([])

    def encode(self, lines: pa.Array) -> Ragged:
        """Piece ids of each line, without specials."""
        if len(self._numbers) > self._most_words:
            self._numbers.clear()
            self._pieces = Ragged.of([])
        whole, words, counts = self._splitter.split(lines)
        encoded = self._pieces_of(words).join(counts)
        if not whole.any():
            return encoded
        place = np.arange(len(lines))
        place[~whole] = np.arange(len(counts))
        place[whole] = len(counts) + np.arange(whole.sum())
        return encoded.concat(self._encode(lines.filter(pa.array(whole)).to_pylist())).take(place)

    def _pieces_of(self, words: pa.Array) -> Ragged:
        distinct = words.dictionary_encode()
        numbers = self._numbers
        found = np.fromiter(
            (numbers.setdefault(word, len(numbers)) for word in distinct.dictionary.to_pylist()), np.int64
        )
        known = len(self._pieces.lengths)
        if known < len(numbers):
            self._pieces = self._pieces.concat(self._encode(list(islice(numbers, known, None))))
        return self._pieces.take(found[distinct.indices.to_numpy()])

    def _encode(self, lines: list[str]) -> Ragged:
        return Ragged.of([e.ids for e in self._tokenizer.encode_batch_fast(lines, add_special_tokens=False)])
