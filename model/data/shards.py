"""Reads shards of pieces as arrays over memory-mapped files, without torch.

A folder holds ``00000.arrow``, ``00001.arrow``, …: uncompressed Arrow IPC files with the columns ``pair_id: string``,
``source`` and ``target``, which are lists of uint16 or uint32 without bos and eos. Rows are numbered across all files
in the order of the file names. Opening a folder reads only the lengths.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from ..errors import bad_data
from ..lazy_import import LazyModule

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray
else:
    np = LazyModule("numpy")
    pa = LazyModule("pyarrow")

Array: TypeAlias = "NDArray[Any]"

SIDES = ("source", "target")


@dataclass(frozen=True)
class _RecordBatch:
    """One record batch of a file; ``sides`` has the values of all rows end to end, and the offset of each row."""

    path: Path
    pair_ids: Any
    sides: dict[str, tuple[Array, Array]]


class Shards:
    """All pairs of a folder. Raises JobError naming a file that is missing or damaged or has another schema."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        paths = sorted(folder.glob("*.arrow"))
        if not paths:
            raise bad_data(f"{folder} holds no .arrow file")
        self.blocks = [block for path in paths for block in _blocks(path)]
        self.starts = np.cumsum([0] + [len(block.pair_ids) for block in self.blocks])
        parts = {side: [np.diff(block.sides[side][1]) for block in self.blocks] for side in SIDES}
        self.lengths: dict[str, Array] = {side: np.concatenate([np.zeros(0, np.int64), *parts[side]]) for side in SIDES}

    def __len__(self) -> int:
        return int(self.starts[-1])

    def pieces(self, side: str, row: int) -> Array:
        """Return the pieces of one side (``source`` or ``target``) of a row as a view into the file."""
        block, i = self._place(row)
        values, offsets = block.sides[side]
        return values[offsets[i] : offsets[i + 1]]

    def _place(self, row: int) -> tuple[_RecordBatch, int]:
        """Return the record batch of a row, and the row's number in it."""
        number = int(np.searchsorted(self.starts, row, side="right")) - 1
        return self.blocks[number], int(row - self.starts[number])

    def gather(self, side: str, rows: Array) -> tuple[Array, Array]:
        """Return the pieces of one side of these rows end to end (int64), and the length of each row."""
        lengths = self.lengths[side][rows]
        numbers = np.searchsorted(self.starts, rows, side="right") - 1
        inside = rows - self.starts[numbers]
        parts = [np.zeros(0, np.int64)]
        # A loop over rows: in a large corpus nearly every row of an update is in a record batch of its own.
        for number, i, length in zip(numbers.tolist(), inside.tolist(), lengths.tolist(), strict=True):
            values, offsets = self.blocks[number].sides[side]
            begin = offsets[i]
            parts.append(values[begin : begin + length])
        return np.concatenate(parts, dtype=np.int64), lengths

    def counts(self, side: str) -> Array:
        """Return the number of occurrences of each piece id on a side; reads all pieces of the side."""
        parts = [np.bincount(block.sides[side][0]) for block in self.blocks]
        total = np.zeros(max((len(part) for part in parts), default=0), np.int64)
        for part in parts:
            total[: len(part)] += part
        return total

    def pair_id(self, row: int) -> str:
        block, i = self._place(row)
        return str(block.pair_ids[i])

    def check_pieces(self, side: str, size: int) -> None:
        """Raise JobError naming file and piece if a piece of a side is not below ``size``; reads all pieces."""
        for block in self.blocks:
            largest = int(block.sides[side][0].max(initial=0))
            if largest >= size:
                raise bad_data(f"{block.path} has {side} piece {largest}, but the vocabulary has {size} entries")


def _blocks(path: Path) -> list[_RecordBatch]:
    try:
        reader = pa.ipc.open_file(pa.memory_map(str(path)))
        batches = [reader.get_batch(i) for i in range(reader.num_record_batches)]
        for batch in batches:
            batch.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        raise bad_data(f"{path} is damaged: {str(error).splitlines()[0]}") from error
    for name in ("pair_id", *SIDES):
        if name not in reader.schema.names:
            raise bad_data(f"{path} has no column {name}, only {', '.join(reader.schema.names)}")
    for name in SIDES:
        kind = reader.schema.field(name).type
        if not pa.types.is_list(kind) or kind.value_type not in (pa.uint16(), pa.uint32()):
            raise bad_data(f"{path} has {name} of type {kind}, allowed are lists of uint16 or uint32")
    return [
        _RecordBatch(
            path,
            batch.column("pair_id"),
            {side: (batch.column(side).values.to_numpy(), batch.column(side).offsets.to_numpy()) for side in SIDES},
        )
        for batch in batches
    ]
