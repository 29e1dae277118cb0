"""Reads shards of pieces as arrays over memory-mapped files, without torch.

A folder of ``00000.arrow``, ``00001.arrow``, …: Arrow IPC files, uncompressed, with columns ``pair_id: string``,
``source`` and ``target``: lists of uint16 or uint32, without bos and eos. Rows are numbered across all files in the
order of their names. Opening a folder reads the lengths only.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from ..errors import JobError
from ..lazy_import import lazy_import

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray
else:
    np = lazy_import("numpy")
    pa = lazy_import("pyarrow")

Array: TypeAlias = "NDArray[Any]"


@dataclass(frozen=True)
class _Column:
    """One column of one record batch: the values of all rows end to end, and the offset of each row."""

    values: Array
    offsets: Array


@dataclass(frozen=True)
class _RecordBatch:
    """One record batch of one file."""

    path: Path
    pair_ids: Any
    sides: dict[str, _Column]

    @property
    def rows(self) -> int:
        return len(self.pair_ids)


class Shards:
    """All pairs of a folder. Raises JobError naming a file that is missing, damaged or has another schema."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.blocks = [block for path in _files(folder) for block in _blocks(path)]
        self.starts = np.cumsum([0] + [block.rows for block in self.blocks])
        self.lengths: dict[str, Array] = {side: self._lengths(side) for side in ("source", "target")}

    def __len__(self) -> int:
        return int(self.starts[-1])

    def pieces(self, side: str, row: int) -> Array:
        """Pieces of one side (``source`` or ``target``) of a row, a view into the file."""
        block = int(np.searchsorted(self.starts, row, side="right")) - 1
        column = self.blocks[block].sides[side]
        i = row - self.starts[block]
        return column.values[column.offsets[i] : column.offsets[i + 1]]

    def gather(self, side: str, rows: Array) -> tuple[Array, Array]:
        """Pieces of one side of these rows end to end (int64), and the length of each row."""
        lengths = self.lengths[side][rows]
        begins = np.cumsum(lengths) - lengths
        pieces = np.empty(int(lengths.sum()), np.int64)
        blocks = np.searchsorted(self.starts, rows, side="right") - 1
        for block in np.unique(blocks):
            chosen = np.flatnonzero(blocks == block)
            column = self.blocks[block].sides[side]
            counts = lengths[chosen]
            within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
            there = column.offsets[rows[chosen] - self.starts[block]]
            pieces[np.repeat(begins[chosen], counts) + within] = column.values[np.repeat(there, counts) + within]
        return pieces, lengths

    def counts(self, side: str) -> Array:
        """How often each piece occurs on a side, by its id; reads all pieces of the side."""
        parts = [np.bincount(block.sides[side].values) for block in self.blocks]
        total = np.zeros(max((len(part) for part in parts), default=0), np.int64)
        for part in parts:
            total[: len(part)] += part
        return total

    def pair_id(self, row: int) -> str:
        block = int(np.searchsorted(self.starts, row, side="right")) - 1
        return str(self.blocks[block].pair_ids[int(row - self.starts[block])])

    def check_pieces(self, side: str, size: int) -> None:
        """Raise JobError naming file and piece unless every piece of a side is below ``size``; reads all pieces."""
        for block in self.blocks:
            largest = int(block.sides[side].values.max(initial=0))
            if largest >= size:
                raise JobError(
                    "bad_data", f"{block.path} has {side} piece {largest}, but the vocabulary has {size} entries"
                )

    def _lengths(self, side: str) -> Array:
        parts = [np.diff(block.sides[side].offsets) for block in self.blocks]
        return np.concatenate(parts).astype(np.int64) if parts else np.zeros(0, np.int64)


def _files(folder: Path) -> list[Path]:
    paths = sorted(folder.glob("*.arrow"))
    if not paths:
        raise JobError("bad_data", f"{folder} holds no .arrow file")
    return paths


def _blocks(path: Path) -> list[_RecordBatch]:
    try:
        reader = pa.ipc.open_file(pa.memory_map(str(path)))
        batches = [reader.get_batch(i) for i in range(reader.num_record_batches)]
        for batch in batches:
            batch.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        raise JobError("bad_data", f"{path} is damaged: {str(error).splitlines()[0]}") from error
    for name in ("pair_id", "source", "target"):
        if name not in reader.schema.names:
            raise JobError("bad_data", f"{path} has no column {name}, only {', '.join(reader.schema.names)}")
    for name in ("source", "target"):
        kind = reader.schema.field(name).type
        if not pa.types.is_list(kind) or kind.value_type not in (pa.uint16(), pa.uint32()):
            raise JobError("bad_data", f"{path} has {name} of type {kind}, allowed are lists of uint16 or uint32")
    return [
        _RecordBatch(
            path, batch.column("pair_id"), {side: _column(batch.column(side)) for side in ("source", "target")}
        )
        for batch in batches
    ]


def _column(column: Any) -> _Column:
    return _Column(column.values.to_numpy(zero_copy_only=True), column.offsets.to_numpy(zero_copy_only=True))
