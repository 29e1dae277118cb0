"""Encodes lines to piece ids word by word with a cache; the ids are exactly those of whole lines.

If single spaces separate the words, no chunk of the tokenizer crosses a space (``learn_bpe.untrained_tokenizer``), so
a line's pieces are its words' pieces. Other lines (other or double white space, or a character that the normaliser
turns into white space) are encoded whole. If the pieces consist of characters, every line is encoded whole.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, pairwise
from typing import TYPE_CHECKING, TypeAlias

from model.data.bpe import of_characters
from tasks.lazy_libraries import NDArray, np, pa, pc, pl

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Integers: TypeAlias = "NDArray[np.int64]"
ODD_SPACE = (
    r"^$|^ | $|  |[\x00-\x1f\x7f-\xa0\x{1680}\x{180e}\x{2000}-\x{200b}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}\x{feff}]"
)
"""Matches text that may have other white space than single spaces between words; may match too much."""

WORDS_PER_LINE = 100
"""New words to encode as one line."""
LINES_PER_CALL = 500
"""Lines to encode at once: the library's results are many times larger than the pieces."""


@dataclass(frozen=True)
class Ragged:
    """Rows of different lengths, concatenated in ``ids``."""

    ids: NDArray[np.int32]
    lengths: Integers

    @classmethod
    def of(cls, rows: list[list[int]]) -> Ragged:
        ids = np.fromiter(chain.from_iterable(rows), np.int32)
        return cls(ids, np.fromiter(map(len, rows), np.int64, len(rows)))

    def take(self, rows: Integers) -> Ragged:
        """The rows with these indices, which may repeat."""
        starts = np.cumsum(self.lengths) - self.lengths
        return self._slices(starts[rows], self.lengths[rows])

    def cut(self, most: int) -> Ragged:
        """The first ``most`` ids of each row."""
        starts = np.cumsum(self.lengths) - self.lengths
        return self._slices(starts, np.minimum(self.lengths, most))

    def _slices(self, starts: Integers, lengths: Integers) -> Ragged:
        at = np.repeat(starts - (np.cumsum(lengths) - lengths), lengths)
        at += np.arange(len(at))
        return Ragged(self.ids[at], lengths)

    def join(self, counts: Integers) -> Ragged:
        """Join the first ``counts[0]`` rows into one, the next ``counts[1]`` into another, and so on."""
        ends = np.concatenate(([0], np.cumsum(self.lengths)))[np.cumsum(counts)]
        return Ragged(self.ids, np.diff(ends, prepend=0))

    def interleave(self, others: NDArray[np.bool_], other: Ragged) -> Ragged:
        """Take the next row of ``other`` where ``others`` is true, and the next row of ``self`` elsewhere."""
        if not others.any():
            return self
        row = np.where(others, len(self.lengths) + np.cumsum(others), np.cumsum(~others)) - 1
        return self.concat(other).take(row)

    def concat(self, *others: Ragged) -> Ragged:
        """All rows, those of ``self`` first."""
        all_ids, all_lengths = zip(*((each.ids, each.lengths) for each in (self, *others)), strict=True)
        return Ragged(np.concatenate(all_ids), np.concatenate(all_lengths))


class WordSplitter:
    """Splits lines into words where that does not change a tokenizer's pieces."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        spaces = (rf"\x{{{ord(c):x}}}" for c in characters_made_space(pickle.dumps(tokenizer.normalizer)))
        self._odd = "" if of_characters(tokenizer) else "|".join([ODD_SPACE, *spaces])

    def split(self, lines: pa.Array) -> tuple[NDArray[np.bool_], pa.Array, Integers]:
        """Split lines into words with a leading space.

        Returns a mask of the lines to encode whole; the words of the other lines; and their number per line.
        """
        whole = pl.Series(pl.from_arrow(lines)).str.contains(self._odd).to_numpy().copy()
        rest = pa.concat_arrays([pa.array([""]), lines.filter(pa.array(~whole)) if whole.any() else lines])
        # A space precedes each line of the joined text, so words are the parts from space to space: nothing is copied.
        (_, end), text = _offsets_and_text(pc.binary_join(pa.ListArray.from_arrays([0, len(rest)], rest), " "))
        spaces = np.flatnonzero(np.frombuffer(text, np.uint8, end) == ord(" "))
        bounds = np.append(spaces, end).astype(np.int32)
        words = pa.StringArray.from_buffers(len(spaces), pa.py_buffer(bounds), pa.py_buffer(text))
        return whole, words, pc.count_substring(rest[1:], " ").to_numpy().astype(np.int64) + 1


@cache
def characters_made_space(normaliser: bytes) -> tuple[str, ...]:
    """Characters that a (pickled) normaliser turns into text with white space (``¨`` by NFKC).

    Testing single characters suffices: a sequence gets white space only if one of its characters does.
    """
    normalise = pickle.loads(normaliser).normalize_str
    everything = "".join(map(chr, chain(range(0x21, 0xD800), range(0xE000, sys.maxunicode + 1))))
    if normalise(everything).removeprefix(" ") == everything:
        return ()
    given = [c for c in everything if not c.isspace()]
    made = normalise("\n".join(given)).removeprefix(" ")
    return tuple(c for c, text in zip(given, made.split("\n"), strict=True) if any(map(str.isspace, text)))


def _offsets_and_text(strings: pa.Array) -> tuple[Integers, memoryview]:
    _, offsets, text = strings.buffers()
    bounds = np.frombuffer(offsets, np.int32)[strings.offset : strings.offset + len(strings) + 1]
    return bounds.astype(np.int64), memoryview(text or b"")


class WordCache:
    """Caches the pieces of words; emptied after ``max_words`` words, so that memory stays bounded."""

    def __init__(self, tokenizer: Tokenizer, max_words: int = 1_000_000) -> None:
        self._tokenizer = tokenizer
        self._splitter = WordSplitter(tokenizer)
        self._max_words = max_words
        self._nothing = pa.array([" "]), Ragged.of([[]])
        self._known = self._nothing
        """Words with a leading space, and their pieces. The first word is in no line; it keeps the table non-empty."""
        self._begins = np.zeros(tokenizer.get_vocab_size(), np.int64)
        """1 for the first piece of a word, 0 for the others; more for added tokens, which may include spaces."""
        self._begins[[number for piece, number in tokenizer.get_vocab().items() if piece.startswith("Ġ")]] = 1
        self._begins[list(tokenizer.get_added_tokens_decoder())] = 1 + WORDS_PER_LINE

    def encode(self, batches: Sequence[pa.Array]) -> Iterator[Ragged]:
        """The piece ids of each batch's lines, without special tokens; looks each distinct word up once."""
        known, pieces = self._known
        splits = []
        words = [known]
        for lines in batches:
            whole, found, counts = self._splitter.split(lines)
            splits.append((lines, whole, counts))
            words.append(found)
        numbered = pa.chunked_array(words).dictionary_encode()
        distinct = numbered.chunk(0).dictionary
        # pyarrow leaves out empty chunks.
        numbers = np.concatenate([chunk.indices for chunk in numbered.chunks])
        ends = np.cumsum([len(found) for found in words])
        del words, numbered
        pieces = pieces.concat(self._encode_words(distinct[len(known) :]))
        self._known = (distinct, pieces) if len(distinct) <= self._max_words else self._nothing
        for (lines, whole, counts), found in zip(splits, np.split(numbers, ends)[1:-1], strict=True):
            encoded = pieces.take(found).join(counts)
            yield encoded.interleave(whole, self._encode(lines.filter(pa.array(whole)).to_pylist()))

    def _encode_words(self, words: pa.Array) -> Ragged:
        """The pieces of words; encodes many words as one line, because each line has a fixed cost."""
        if not len(words):
            return Ragged.of([])
        offsets, text = _offsets_and_text(words)
        bounds = np.append(offsets[:-1:WORDS_PER_LINE], offsets[-1])
        rows = self._encode([str(text[begin + 1 : end], "utf-8") for begin, end in pairwise(bounds)])
        begins = self._begins[rows.ids]
        numbers = np.full(len(rows.lengths), WORDS_PER_LINE)
        numbers[-1] = len(words) - WORDS_PER_LINE * (len(numbers) - 1)
        alone = np.repeat(np.add.reduceat(begins, np.cumsum(rows.lengths) - rows.lengths) != numbers, numbers)
        if alone.any():
            single = [word.removeprefix(" ") for word in words.filter(pa.array(alone)).to_pylist()]
            return self._encode_words(words.filter(pa.array(~alone))).interleave(alone, self._encode(single))
        return Ragged(rows.ids, np.diff(np.append(np.flatnonzero(begins), len(begins))))

    def _encode(self, lines: list[str]) -> Ragged:
        blocks = (lines[begin : begin + LINES_PER_CALL] for begin in range(0, len(lines), LINES_PER_CALL))
        encoded = (self._tokenizer.encode_batch_fast(block, add_special_tokens=False) for block in blocks)
        return Ragged.of([]).concat(*(Ragged.of([each.ids for each in block]) for block in encoded))
