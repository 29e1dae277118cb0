"""Counts the distinct chunks of a corpus; a BPE learner needs only these counts.

A chunk is a part of the text as the tokenizer's pre-tokenizer splits it; a byte-level chunk includes the space before
it. Workers count ranges of row groups and write the counts partitioned by hash; then each partition is summed. Memory
does not grow with the corpus, and the counts are the same for any number of ranges, partitions and workers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infra.processes.workers import Workers
from model.data.bpe import BYTE_DECODER, of_characters
from model.data.word_splitting import WordSplitting
from model.lazy_import import LazyModule
from tasks.bpe.word_cache import WordSplitter
from tasks.cleaning.filters import SIDES
from tasks.cleaning.partitions import read_batch, write_batches
from tasks.corpus.noise import NO_NOISE, PAIR, Augment
from tasks.engine.stage import progress
from tasks.lazy_libraries import np, pa, pc, pl, pq

if TYPE_CHECKING:
    import tokenizers
    from tokenizers import Tokenizer
else:
    tokenizers = LazyModule("tokenizers")

BATCH_PAIRS = 50_000
RANGE_PAIRS = 200_000
"""Fewest pairs of a range of row groups, except the last."""
PART_PAIRS = 500_000
"""Pairs of the corpus per hash partition."""
MAX_UNMERGED_ROWS = 2_000_000
"""Rows of counts to hold before the counts of equal words are summed."""
WORDS_PER_CALL = 10_000
"""Words per call of the pre-tokenizer."""
SPACE = "Ġ"
"""The space in byte-level chunks; the first chunk of each word begins with it."""
STABLE_CHARACTERS = "".join(map(chr, (*range(0x21, 0x7F), *range(0xC0, 0x250), *range(0x400, 0x460))))
"""Characters (ASCII, Latin, Cyrillic) with the same properties in all versions of Unicode."""
CHUNK_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+"
"""Matches the chunks of ``pre_tokenizers.ByteLevel`` in a word with a space before it."""
WHOLE_WORD = r" [^ ]+"
"""Matches a whole word as one chunk, for example a token of spaCy."""


def _schema() -> dict[str, Any]:
    return {"chunk": pl.String, "count": pl.Int64}


def count_chunks(tokenizer: Tokenizer, batches: Iterable[pa.Array]) -> pl.DataFrame:
    """Count the tokenizer's chunks in all lines; columns ``chunk`` and ``count``."""
    if of_characters(tokenizer):
        found = Counter(chunk for lines in batches for line in lines.to_pylist() for chunk in _chunks(tokenizer, line))
        return pl.DataFrame({"chunk": list(found), "count": list(found.values())}, schema=_schema(), strict=True)
    splitter = WordSplitter(tokenizer)
    whole_lines = Counter[str]()
    counted = [pl.DataFrame(schema=_schema())]
    for lines in batches:
        whole, words, _ = splitter.split(lines)
        found = pc.value_counts(words)
        counted.append(pl.DataFrame({"chunk": found.field("values"), "count": found.field("counts")}))
        if sum(map(len, counted)) > MAX_UNMERGED_ROWS:
            counted = [sum_counts(counted)]
        for line in lines.filter(pa.array(whole)).to_pylist():
            whole_lines.update(_chunks(tokenizer, line))
    from_lines = pl.DataFrame(
        {"chunk": map(chunk_text, whole_lines), "count": list(whole_lines.values())}, schema=_schema(), strict=True
    )
    return sum_counts([*split_into_chunks(tokenizer, sum_counts(counted)), from_lines])


def split_into_chunks(tokenizer: Tokenizer, words: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Split words with a leading space into chunks with counts; a chunk may occur in several rows."""
    unchanged = "".join(
        rf"\x{{{ord(c):x}}}" for c in STABLE_CHARACTERS if tokenizer.normalizer.normalize_str(c) == f" {c}"
    )
    plain = pl.col("chunk").str.contains(f"^ [{unchanged}]+$")
    in_chunks = isinstance(tokenizer.pre_tokenizer, tokenizers.pre_tokenizers.ByteLevel)
    pattern = CHUNK_PATTERN if in_chunks else WHOLE_WORD
    yield words.filter(plain).select(pl.col("chunk").str.extract_all(pattern), "count").explode("chunk")
    for some in words.filter(~plain).iter_slices(WORDS_PER_CALL):
        found = _chunks(tokenizer, "".join(some["chunk"]).removeprefix(" "))
        # A word has a space before it and none inside.
        number = np.cumsum([chunk.startswith(SPACE) for chunk in found]) - 1
        yield pl.DataFrame({"chunk": map(chunk_text, found), "count": some["count"].gather(number)}, schema=_schema())


def sum_counts(counted: list[pl.DataFrame]) -> pl.DataFrame:
    """One row per chunk, with the sum of its counts."""
    return pl.concat(counted).group_by("chunk").agg(pl.col("count").sum())


def chunk_text(chunk: str) -> str:
    """The text of a byte-level chunk."""
    return bytes(BYTE_DECODER[c] for c in chunk).decode()


def _chunks(tokenizer: Tokenizer, text: str) -> list[str]:
    return [chunk for chunk, _ in tokenizer.pre_tokenizer.pre_tokenize_str(tokenizer.normalizer.normalize_str(text))]


@dataclass(frozen=True)
class ChunkCounter:
    """The counting steps and their shared settings; picklable, so that other processes can run them."""

    pairs: Path
    """``pairs.parquet``."""
    columns: tuple[str, ...]
    tokenizer: Tokenizer
    folder: Path
    """A scratch folder that exists and that all workers see."""
    parts: int
    splitting: WordSplitting | None = None
    """How words are split first."""
    augment: Augment = NO_NOISE
    """The noised copies that are counted too."""

    def count(self, number: int, groups: tuple[int, ...]) -> int:
        """Write the chunks of range ``number``, partitioned by hash; returns its number of pairs."""
        found = count_chunks(self.tokenizer, self._lines(groups))
        hashed = found.select(pl.col("chunk").hash(seed=1).alias("value"), "chunk", "count")
        write_batches(self._range(number), hashed, self.parts)
        with pq.ParquetFile(self.pairs) as file:
            return sum(file.metadata.row_group(group).num_rows for group in groups)

    def _lines(self, groups: tuple[int, ...]) -> Iterator[pa.Array]:
        """The text columns of row groups, by batch, so that memory stays flat."""
        split = self.splitting
        columns = list(PAIR if self.augment.shares else self.columns)
        with pq.ParquetFile(self.pairs) as file:
            for batch in self.augment.beside(file.iter_batches(BATCH_PAIRS, row_groups=list(groups), columns=columns)):
                for column in self.columns:
                    lines = batch.column(column).cast(pa.string())
                    yield pa.array(split.split(lines.to_pylist(), SIDES.index(column)), pa.string()) if split else lines

    def sum(self, part: int, ranges: int) -> Path:
        """Write the summed counts of a partition over all ranges; returns the file."""
        found = read_batch([self._range(number) for number in range(ranges)], part)
        path = self.folder / f"{part}.part.arrow"
        write_batches(path, sum_counts([found]))
        return path

    def _range(self, number: int) -> Path:
        return self.folder / f"{number}.range.arrow"


def count_corpus(
    pairs: Path,
    columns: tuple[str, ...],
    tokenizer: Tokenizer,
    folder: Path,
    workers: Workers,
    splitting: WordSplitting | None = None,
    augment: Augment = NO_NOISE,
) -> list[Path]:
    """Create ``folder`` with files of chunk counts for ``read_batch``; each chunk occurs in one file only."""
    folder.mkdir()
    with pq.ParquetFile(pairs) as file:
        total = file.metadata.num_rows
        ranges = list(row_groups(file.metadata, RANGE_PAIRS))
    parts = 1 + total // PART_PAIRS
    counting = ChunkCounter(pairs.absolute(), columns, tokenizer, folder.absolute(), parts, splitting, augment)
    done = 0
    for count in workers.map(counting.count, enumerate(ranges)):
        done += count
        progress(done, total, "pairs read")
    return list(workers.map(counting.sum, ((part, len(ranges)) for part in range(counting.parts))))


def row_groups(metadata: pq.FileMetaData, least: int) -> Iterator[tuple[int, ...]]:
    """The row groups of a file in ranges of at least ``least`` rows, except the last."""
    groups: list[int] = []
    rows = 0
    for group in range(metadata.num_row_groups):
        groups.append(group)
        rows += metadata.row_group(group).num_rows
        if rows >= least:
            yield tuple(groups)
            groups = []
            rows = 0
    if groups:
        yield tuple(groups)
