"""Lines to piece ids, and to counts, with each distinct word looked at once; exactly as if they were whole lines.

Where words stand between single spaces, no chunk of the tokenizer reaches over a space (``learn_bpe.untrained``), so
that a line's pieces are its words' pieces in a row. Any other line (odd or doubled white space, or a character that
the normaliser turns into some) is taken whole.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
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

TOGETHER = 10_000
"""Words that are cut into chunks in one call."""
SPACE = "Ġ"
"""A space, as byte-level chunks spell it; each word's first chunk begins so."""


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


class DistinctWords:
    """The words met so far, numbered from 0."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.numbers: dict[str, int] = {}
        self._odd = np.zeros(0, np.bool_)

    def split(self, lines: pa.Array) -> tuple[NDArray[np.bool_], Integers, Integers]:
        """Which lines are to be taken whole; of the others the numbers of all words, and how many each line has."""
        whole = odd_space(lines)
        plain = np.flatnonzero(~whole)
        split = pc.split_pattern(lines.take(pa.array(plain)), " ")
        counts = pc.list_value_length(split).to_numpy(zero_copy_only=False).astype(np.int64)
        numbers = self._numbers(split.flatten())
        if self._odd[numbers].any():
            line = np.repeat(np.arange(len(plain)), counts)
            turned = np.zeros(len(plain), np.bool_)
            turned[line[self._odd[numbers]]] = True
            whole[plain[turned]] = True
            numbers, counts = numbers[~turned[line]], counts[~turned]
        return whole, numbers, counts

    def forget(self) -> None:
        self.numbers.clear()
        self._odd = self._odd[:0]

    def _numbers(self, words: pa.Array) -> Integers:
        """Of each word; those that are new get theirs."""
        distinct = words.dictionary_encode()
        spelt = distinct.dictionary.to_pylist()
        new = [word for word in spelt if word not in self.numbers]
        if new:
            self.numbers.update(zip(new, range(len(self.numbers), len(self.numbers) + len(new)), strict=True))
            normalised = [self.tokenizer.normalizer.normalize_str(word).removeprefix(" ") for word in new]
            self._odd = np.concatenate((self._odd, odd_space(pa.array(normalised, pa.string()))))
        numbers: Integers = np.fromiter(map(self.numbers.__getitem__, spelt), np.int64, len(spelt))
        occurrences: Integers = distinct.indices.to_numpy()
        return numbers[occurrences]


class WordTable:
    """The pieces of each word met so far. It is emptied when it has grown large, so that memory stays flat."""

    def __init__(self, tokenizer: Tokenizer, most_words: int = 1_000_000) -> None:
        self._words = DistinctWords(tokenizer)
        self._most_words = most_words
        self._pieces = Ragged.of([])

    def encode(self, lines: pa.Array) -> Ragged:
        """Piece ids of each line, without specials."""
        if len(self._words.numbers) > self._most_words:
            self._words.forget()
            self._pieces = Ragged.of([])
        whole, numbers, counts = self._words.split(lines)
        known = len(self._pieces.lengths)
        if known < len(self._words.numbers):
            self._pieces = self._pieces.then(self._encode(list(islice(self._words.numbers, known, None))))
        words = self._pieces.take(numbers).join(counts)
        if not whole.any():
            return words
        place = np.arange(len(lines))
        place[~whole] = np.arange(len(counts))
        place[whole] = len(counts) + np.arange(whole.sum())
        return words.then(self._encode(lines.filter(pa.array(whole)).to_pylist())).take(place)

    def _encode(self, lines: list[str]) -> Ragged:
        return Ragged.of([e.ids for e in self._words.tokenizer.encode_batch_fast(lines, add_special_tokens=False)])


def count_chunks(tokenizer: Tokenizer, batches: Iterable[pa.Array]) -> Counter[str]:
    """How often each chunk that the tokenizer's BPE works on occurs in lines of text, spelt in its alphabet."""
    words, chunks = DistinctWords(tokenizer), Counter[str]()
    counts = np.zeros(0, np.int64)
    for lines in batches:
        whole, numbers, _ = words.split(lines)
        counts = np.pad(counts, (0, len(words.numbers) - len(counts)))
        counts += np.bincount(numbers, minlength=len(counts))
        for line in lines.filter(pa.array(whole)).to_pylist():
            chunks.update(_chunks(tokenizer, line))
    met = [(word, count) for word, count in zip(words.numbers, counts.tolist(), strict=True) if count]
    for begin in range(0, len(met), TOGETHER):
        some = met[begin : begin + TOGETHER]
        found = _chunks(tokenizer, " ".join(word for word, _ in some))
        starts = [chunk.startswith(SPACE) for chunk in found]
        if sum(starts) == len(some):
            of_each = [count for _, count in some]
            for chunk, number in zip(found, np.cumsum(starts) - 1, strict=True):
                chunks[chunk] += of_each[number]
        else:  # the normaliser made a space within a word
            for word, count in some:
                for chunk in _chunks(tokenizer, word):
                    chunks[chunk] += count
    return chunks


def _chunks(tokenizer: Tokenizer, text: str) -> list[str]:
    return [chunk for chunk, _ in tokenizer.pre_tokenizer.pre_tokenize_str(tokenizer.normalizer.normalize_str(text))]


def odd_space(lines: pa.Array) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = pc.match_substring_regex(lines, ODD_SPACE).to_numpy(zero_copy_only=False)
    return found.copy()
