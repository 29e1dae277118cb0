"""Encodes pairs of text as shards of piece ids, which training and decoding map into memory.

    00000.arrow  00001.arrow  …    pair_id: string; source, target: list<uint16 or uint32>

Uncompressed Arrow IPC files; pieces without bos and eos; rows in the order of ``pairs.parquet``. Workers encode ranges
of rows to files, and the stage writes these to shards: the bytes are the same for any number of ranges and workers.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Literal

from infra.errors import BadData
from infra.store.store import Artifact
from model.config.keying import require, unkeyed_default
from model.config.special_pieces import UNK
from model.data.bpe import TokenizerPair
from tasks.bpe.word_cache import Ragged, WordCache
from tasks.bpe.word_counts import BATCH_PAIRS, RANGE_PAIRS, row_groups
from tasks.cleaning.filters import SIDES
from tasks.corpus.noise import NO_NOISE, PAIR, Augment
from tasks.engine.stage import Facts, progress, site, stage
from tasks.lazy_libraries import NDArray, np, pa, pc, pq

COPY = r":\d+\+\w+$"
"""Matches the end of the ``pair_id`` of a noised copy: ``europarl:17+caps``."""
CUT = b"cut"
"""Metadata field of an encoded batch: the number of pairs that were cut."""
BYTES_TOGETHER = 64 << 20
"""Fewest bytes of text whose distinct words are encoded at once, except at the end of a range: bounds memory."""


@dataclass(frozen=True)
class Sharding:
    """Limits of the pairs to keep, in pieces without bos and eos, and the size of a shard."""

    min_pieces: int = 1
    """Fewest pieces on each side."""
    max_pieces: int = 250
    """Most pieces on each side."""
    max_ratio: float = 0.0
    """Largest ratio of the longer to the shorter side in pieces; 0 turns the limit off."""
    pairs_per_shard: int = 500_000
    """Most pairs of a file."""
    too_long: Literal["drop", "cut"] = unkeyed_default("drop")
    """drop: leave out a pair with more than ``max_pieces`` on a side; cut: keep the first ``max_pieces`` there."""

    def __post_init__(self) -> None:
        require(self.min_pieces >= 0, "sharding.min_pieces", self.min_pieces, "a whole number of at least 0")
        allowed = f"a whole number of at least sharding.min_pieces, {self.min_pieces}, and 1"
        require(self.max_pieces >= max(self.min_pieces, 1), "sharding.max_pieces", self.max_pieces, allowed)
        allowed = "0 (off) or at least 1"
        require(self.max_ratio == 0 or self.max_ratio >= 1, "sharding.max_ratio", self.max_ratio, allowed)
        allowed = "a whole number of at least 1"
        require(self.pairs_per_shard >= 1, "sharding.pairs_per_shard", self.pairs_per_shard, allowed)
        require(self.too_long in ("drop", "cut"), "sharding.too_long", self.too_long, "drop or cut")

    def keeps(self, source: NDArray[np.int64], target: NDArray[np.int64]) -> NDArray[np.bool_]:
        """A mask of the pairs to keep, from the numbers of pieces on each side."""
        shorter = np.minimum(source, target)
        longer = np.maximum(source, target)
        keeps: NDArray[np.bool_] = (shorter >= self.min_pieces) & (longer <= self.max_pieces)
        return keeps & (longer <= self.max_ratio * shorter) if self.max_ratio else keeps


KEEP_EVERY_PAIR = Sharding(min_pieces=0, max_pieces=2**31 - 1)
"""For evaluation sets, which must keep every line."""


class Encoder:
    """Encodes batches of text as batches of piece ids."""

    def __init__(self, vocabulary: Path, sharding: Sharding) -> None:
        pieces = TokenizerPair.load(vocabulary)
        self._pieces = pieces
        self._sharding = sharding
        self._source = WordCache(pieces.source)
        self._target = self._source if pieces.target is pieces.source else WordCache(pieces.target)
        ids = pa.uint16() if max(pieces.source_size, pieces.target_size) <= 2**16 else pa.uint32()
        self.schema = pa.schema([("pair_id", pa.string()), ("source", pa.list_(ids)), ("target", pa.list_(ids))])

    def encode(self, batches: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the pairs of each batch within the limits; its metadata has the number of pairs that were cut."""
        sources = self._source.encode([self._text(pairs, 0) for pairs in batches])
        targets = self._target.encode([self._text(pairs, 1) for pairs in batches])
        for pairs, source, target in zip(batches, sources, targets, strict=True):
            yield self._kept(pairs, source, target)

    def _text(self, pairs: pa.RecordBatch, side: int) -> pa.Array:
        lines = pairs.column(SIDES[side]).cast(pa.string())
        return pa.array(self._pieces.split(lines.to_pylist(), side), pa.string()) if self._pieces.splitting else lines

    def _kept(self, pairs: pa.RecordBatch, source: Ragged, target: Ragged) -> pa.RecordBatch:
        lengths = np.maximum(source.lengths, target.lengths)
        cuts = self._sharding.too_long == "cut"
        if cuts:
            source, target = (side.cut(self._sharding.max_pieces) for side in (source, target))
        kept = np.flatnonzero(self._sharding.keeps(source.lengths, target.lengths))
        metadata = {CUT: f"{np.count_nonzero(lengths[kept] > self._sharding.max_pieces)}"} if cuts else None
        columns = [
            pairs.column("pair_id").cast(pa.string()).take(pa.array(kept)),
            _lists(source.take(kept), self.schema.field("source").type),
            _lists(target.take(kept), self.schema.field("target").type),
        ]
        return pa.record_batch(columns, schema=self.schema.with_metadata(metadata))


class ShardWriter:
    """Writes batches into files of at most ``pairs_per_shard`` rows. The last file is complete after ``close``."""

    def __init__(self, out: Path, schema: pa.Schema, pairs_per_shard: int) -> None:
        self._out = out
        self._schema = schema
        self._capacity = pairs_per_shard
        self._file: pa.ipc.RecordBatchFileWriter
        self.shards = 0
        self._left = 0

    def write(self, batch: pa.RecordBatch) -> None:
        while batch.num_rows:
            if not self._left:
                self.close()
                self._file = pa.ipc.new_file(str(self._out / f"{self.shards:05}.arrow"), self._schema)
                self.shards += 1
                self._left = self._capacity
            part = batch.slice(0, self._left)
            batch = batch.slice(self._left)
            self._file.write_batch(part)
            self._left -= part.num_rows

    def close(self) -> None:
        if self.shards:
            self._file.close()


@dataclass(frozen=True)
class RowRange:
    """A range of rows of ``pairs.parquet`` that one call encodes."""

    groups: tuple[int, ...]
    """The row groups that contain the range."""
    skip: int
    """Rows of these groups before the range."""
    rows: int


def row_ranges(pairs: Path) -> list[RowRange]:
    """Split all rows into ranges, in order.

    The size of each range except the last is a multiple of BATCH_PAIRS, so the batches equal those of a single pass.
    """
    metadata = pq.read_metadata(pairs)
    ends = np.cumsum([metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)])
    found = []
    begin = 0
    for groups in row_groups(metadata, RANGE_PAIRS):
        end = min(-(-int(ends[groups[-1]]) // BATCH_PAIRS) * BATCH_PAIRS, metadata.num_rows)
        if end > begin:
            first = np.searchsorted(ends, begin, side="right")
            last = np.searchsorted(ends, end)
            before = int(ends[first - 1]) if first else 0
            found.append(RowRange(tuple(range(first, last + 1)), begin - before, end - begin))
            begin = end
    return found


def read_batches(pairs: Path, rows: RowRange, batch_pairs: int) -> Iterator[pa.RecordBatch]:
    """``pair_id``, ``source`` and ``target`` of these rows in batches of ``batch_pairs``."""
    skip = rows.skip
    remaining = rows.rows
    buffered = []
    with pq.ParquetFile(pairs) as file:
        for read in file.iter_batches(batch_pairs, row_groups=list(rows.groups), columns=list(PAIR)):
            buffered.append(read.slice(skip))
            skip = max(skip - read.num_rows, 0)
            table = pa.Table.from_batches(buffered)
            while remaining and table.num_rows >= (count := min(batch_pairs, remaining)):
                yield table.slice(0, count).combine_chunks().to_batches()[0]
                table = table.slice(count)
                remaining = remaining - count
            buffered = table.to_batches()


@dataclass(frozen=True)
class RangeEncoder:
    """Encodes ranges of rows; picklable, so that other processes can run it."""

    pairs: Path
    vocabulary: Path
    sharding: Sharding
    folder: Path
    """A scratch folder that exists and that all workers see."""
    batch_pairs: int
    """Pairs per record batch."""
    augment: Augment = NO_NOISE
    """The noised copies that follow the pairs of each batch."""
    call: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Names this call of the stage, since a later call may find another vocabulary at the same path."""

    def encode(self, number: int, rows: RowRange) -> Path:
        """Write the pairs of a range within the limits; the file appears by a rename, so the call can be repeated."""
        encoder = _encoder(self)
        path = self.folder / f"{number}.arrow"
        partial = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
        with pa.ipc.new_file(str(partial), encoder.schema) as file:
            read = read_batches(self.pairs, rows, self.batch_pairs)
            for batches in _together(self.augment.beside(read)):
                for batch in encoder.encode(batches):
                    file.write_batch(batch, batch.schema.metadata)
        return partial.replace(path)


@lru_cache(1)
def _encoder(ranges: RangeEncoder) -> Encoder:
    """The encoder for all ranges of a process in one call of the stage, which keeps the words of earlier ranges."""
    return Encoder(ranges.vocabulary, ranges.sharding)


def _together(batches: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """The batches in lists of at least ``BYTES_TOGETHER``, except the last."""
    found: list[pa.RecordBatch] = []
    for batch in batches:
        found.append(batch)
        if sum(each.nbytes for each in found) >= BYTES_TOGETHER:
            yield found
            found = []
    if found:
        yield found


def _lists(rows: Ragged, kind: pa.DataType) -> pa.Array:
    offsets = np.concatenate(([0], np.cumsum(rows.lengths))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(rows.ids, kind.value_type), type=kind)


def _write(
    folder: Path, schema: pa.Schema, encoder: RangeEncoder, ranges: Sequence[RowRange], encoded: Iterable[Path]
) -> Facts:
    """Write the ``encoded`` ranges, in order, as shards, and remove them; returns the facts of the stage."""
    read = sum(rows.rows for rows in ranges)
    done = 0
    totals = Counter(pairs=0, dropped=read)
    with closing(ShardWriter(folder, schema, encoder.sharding.pairs_per_shard)) as writer:
        for rows, path in zip(ranges, encoded, strict=True):
            done += rows.rows
            progress(done, read, "pairs")
            with pa.memory_map(str(path)) as mapped:
                file = pa.ipc.open_file(mapped)
                for batch, metadata in map(file.get_batch_with_custom_metadata, range(file.num_record_batches)):
                    writer.write(batch)
                    totals["pairs"] += batch.num_rows
                    copies = 0
                    if encoder.augment.shares:
                        is_copy = pc.match_substring_regex(batch.column("pair_id"), COPY)
                        copies = pc.sum(is_copy).as_py() or 0
                        totals["noised_copies"] += copies
                    ids = {side: batch.column(side).flatten().to_numpy() for side in SIDES}
                    totals.update({f"{side}_pieces": len(ids[side]) for side in SIDES})
                    totals.update({f"{side}_unknown": int(np.count_nonzero(ids[side] == UNK)) for side in SIDES})
                    if metadata and not copies:  # a batch has either pairs or copies
                        totals["cut"] += int(metadata[CUT])
            path.unlink()
    totals["dropped"] -= totals["pairs"] - totals["noised_copies"]
    return {**totals, "shards": writer.shards}


@stage(version=1)
def shard(out: Path, pairs: Artifact, vocabulary: Artifact, sharding: Sharding, augment: Augment = NO_NOISE) -> Facts:
    """Write the pairs of ``pairs.parquet``, and noised copies of some, within the limits of ``sharding`` as shards."""
    text = (pairs.path() / "pairs.parquet").absolute()
    scratch = (out / "encoded").absolute()
    scratch.mkdir()
    ranges = row_ranges(text)
    encoder = RangeEncoder(text, vocabulary.path().absolute(), sharding, scratch, BATCH_PAIRS, augment)
    schema = Encoder(vocabulary.path(), sharding).schema
    with site().executor() as workers:
        facts = _write(out, schema, encoder, ranges, workers.map(encoder.encode, enumerate(ranges)))
    scratch.rmdir()
    _encoder.cache_clear()
    if not facts["pairs"]:
        raise BadData(f"none of {facts['dropped']} pairs is within the limits in pieces: {sharding}")
    return facts
