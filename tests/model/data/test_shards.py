"""Tests of shards: rows are read back as written, and errors name the file."""

import os
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from small_training import pairs, write_shards

from model.data.shards import Shards
from model.errors import JobError


def test_rows_come_back_in_the_order_of_the_files(tmp_path: Path) -> None:
    rows = pairs(40)
    shards = Shards(write_shards(tmp_path / "shards", rows, files=3))
    order = [i for number in range(3) for i in range(40)[number::3]]
    assert len(shards) == 40
    assert [shards.pair_id(row) for row in range(40)] == [f"small:{i}" for i in order]
    assert [shards.pieces("source", row).tolist() for row in range(40)] == [rows[i][0] for i in order]
    assert [shards.pieces("target", row).tolist() for row in range(40)] == [rows[i][1] for i in order]
    assert shards.lengths["source"].tolist() == [len(rows[i][0]) for i in order]


def test_counts_are_those_of_the_rows_one_by_one(tmp_path: Path) -> None:
    rows = pairs(40)
    shards = Shards(write_shards(tmp_path / "shards", rows, files=3))
    for place, side in enumerate(("source", "target")):
        expected = Counter(piece for row in rows for piece in row[place])
        assert dict(enumerate(shards.counts(side).tolist())) == {i: expected[i] for i in range(max(expected) + 1)}


def test_a_piece_beyond_the_vocabulary_is_named(tmp_path: Path) -> None:
    shards = Shards(write_shards(tmp_path / "shards", [([4, 9], [5]), ([4], [6, 7])]))
    shards.check_pieces("source", 10)
    with pytest.raises(JobError, match=r"00000.arrow has source piece 9, but the vocabulary has 9 entries"):
        shards.check_pieces("source", 9)
    with pytest.raises(JobError, match=r"00001.arrow has target piece 7"):
        shards.check_pieces("target", 7)


@pytest.mark.parametrize("size", [0, 10, 400, -1])
def test_a_truncated_file_is_named(tmp_path: Path, size: int) -> None:
    path = write_shards(tmp_path / "shards", pairs(40)) / "00001.arrow"
    os.truncate(path, size if size >= 0 else path.stat().st_size - 1)
    with pytest.raises(JobError, match=r"00001.arrow is damaged"):
        Shards(tmp_path / "shards")


def test_another_schema_is_named(tmp_path: Path) -> None:
    (tmp_path / "shards").mkdir()
    with pytest.raises(JobError, match="holds no .arrow file"):
        Shards(tmp_path / "shards")
    for columns, message in (
        ({"pair_id": ["a"], "source": [[1]]}, "has no column target, only pair_id, source"),
        ({"pair_id": ["a"], "source": [[1]], "target": ["text"]}, "has source of type list<.*int64>"),
    ):
        table = pa.table(columns)
        path = tmp_path / "shards" / "00000.arrow"
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as out:
            out.write_table(table)
        with pytest.raises(JobError, match=message):
            Shards(tmp_path / "shards")
