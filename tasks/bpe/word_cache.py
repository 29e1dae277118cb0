"""Encodes lines to piece ids word by word with a cache; the ids are exactly those of whole lines.

Between words separated by single spaces no chunk of the tokenizer crosses a space (``learn_bpe.untrained_tokenizer``),
so a line's pieces are its words' pieces. Other lines (other or double white space, or a character that the normaliser
turns into white space) are encoded whole.
"""

from __future__ import annotations

import pickle
import sys
from dataclasses import dataclass
from functools import cache
from itertools import chain, islice
from typing import TYPE_CHECKING, TypeAlias

from model.lazy_import import lazy_import

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc
    from numpy.typing import NDArray
    from tokenizers import Tokenizer
else:
    np, pa, pc = lazy_import("numpy"), lazy_import("pyarrow"), lazy_import("pyarrow.compute")

Integers: TypeAlias = "NDArray[np.int64]"
ODD_SPACE = (
    r"^$|^ | $|  |[\x00-\x1f\x7f-\xa0\x{1680}\x{180e}\x{2000}-\x{200b}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}\x{feff}]"
)
"""Matches text whose white space may be more than single spaces between words; wider than any definition of it."""


@dataclass(frozen=True)
class Ragged:
    """Rows of different lengths, concatenated in ``ids``."""

    ids: Integers
    lengths: Integers

    @classmethod
    def of(cls, rows: list[list[int]]) -> Ragged:
        ids = np.fromiter(chain.from_iterable(rows), np.int64)
        return cls(ids, np.fromiter(map(len, rows), np.int64, len(rows)))

    def take(self, rows: Integers) -> Ragged:
        """The rows with these indices, which may repeat."""
        starts = np.cumsum(self.lengths) - self.lengths
        lengths = self.lengths[rows]
        shifts = starts[rows] - (np.cumsum(lengths) - lengths)
        return Ragged(self.ids[np.repeat(shifts, lengths) + np.arange(lengths.sum())], lengths)

    def cut(self, most: int) -> Ragged:
        """The first ``most`` ids of each row."""
        starts = np.cumsum(self.lengths) - self.lengths
        lengths = np.minimum(self.lengths, most)
        shifts = starts - (np.cumsum(lengths) - lengths)
        return Ragged(self.ids[np.repeat(shifts, lengths) + np.arange(lengths.sum())], lengths)

    def join(self, counts: Integers) -> Ragged:
        """Join the first ``counts[0]`` rows into one, the next ``counts[1]`` into another, and so on."""
        ends = np.concatenate(([0], np.cumsum(self.lengths)))[np.cumsum(counts)]
        return Ragged(self.ids, np.diff(ends, prepend=0))

    def concat(self, other: Ragged) -> Ragged:
        """The rows of both."""
        return Ragged(np.concatenate((self.ids, other.ids)), np.concatenate((self.lengths, other.lengths)))


class WordSplitter:
    """Splits lines into words where that does not change a tokenizer's pieces."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._odd = "|".join(
            [ODD_SPACE, *(rf"\x{{{ord(c):x}}}" for c in characters_made_space(pickle.dumps(tokenizer.normalizer)))]
        )

    def split(self, lines: pa.Array) -> tuple[NDArray[np.bool_], pa.Array, Integers]:
        """A mask of the lines to encode whole, and the concatenated words of the others with their number per line."""
        whole: NDArray[np.bool_] = pc.match_substring_regex(lines, self._odd).to_numpy(zero_copy_only=False).copy()
        split = pc.split_pattern(lines.filter(pa.array(~whole)) if whole.any() else lines, " ")
        counts = pc.list_value_length(split).to_numpy(zero_copy_only=False).astype(np.int64)
        return whole, split.flatten(), counts


@cache
def characters_made_space(normaliser: bytes) -> tuple[str, ...]:
    """Characters that a (pickled) normaliser turns into text with white space (``¨`` by NFKC).

    It suffices to test single characters: no sequence gets white space that none of its characters gets.
    """
    normalise = pickle.loads(normaliser).normalize_str
    everything = "".join(map(chr, chain(range(0x21, 0xD800), range(0xE000, sys.maxunicode + 1))))
    if normalise(everything).removeprefix(" ") == everything:
        return ()
    given = [c for c in everything if not c.isspace()]
    made = normalise("\n".join(given)).removeprefix(" ")
    return tuple(c for c, text in zip(given, made.split("\n"), strict=True) if any(map(str.isspace, text)))


class WordCache:
    """The pieces of each word so far; emptied after ``max_words`` words, so that memory stays bounded."""

    def __init__(self, tokenizer: Tokenizer, max_words: int = 1_000_000) -> None:
        self._tokenizer, self._splitter = tokenizer, WordSplitter(tokenizer)
        self._max_words = max_words
        self._numbers: dict[str, int] = {}
        self._pieces = Ragged.of([])

    def encode(self, lines: pa.Array) -> Ragged:
        """Piece ids of each line, without special tokens."""
        if len(self._numbers) > self._max_words:
            self._numbers.clear()
            self._pieces = Ragged.of([])
        whole, words, counts = self._splitter.split(lines)
        encoded = self._pieces_of(words).join(counts)
        if not whole.any():
            return encoded
        row = np.arange(len(lines))
        row[~whole] = np.arange(len(counts))
        row[whole] = len(counts) + np.arange(whole.sum())
        return encoded.concat(self._encode(lines.filter(pa.array(whole)).to_pylist())).take(row)

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
