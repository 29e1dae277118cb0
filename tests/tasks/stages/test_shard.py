"""Shards hold the pieces of whole lines, in order, within the limits; what is dropped is counted."""

from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from infra.errors import BadData
from infra.store.local import Artifact
from model.data.bpe import TokenizerPair
from tasks.stages.learn_bpe import Vocabulary, train_tokenizer
from tasks.stages.shard import NO_LIMITS, Encoder, Sharding, shard

SOURCE = [f"dog {n} runs over {n * n} meadows" for n in range(50)] + ["", " odd\u00a0 space ", "word " * 300]
TARGET = [f"Hund {n} läuft über {n * n} Wiesen" for n in range(50)] + ["leer", "  ", "Wort " * 290]
IDS = [f"toy:{n}" for n in range(len(SOURCE))]


@pytest.fixture
def text(tmp_path: Path) -> Artifact:
    (tmp_path / "text").mkdir()
    frame = pl.DataFrame({"pair_id": IDS, "corpus": "toy", "source": SOURCE, "target": TARGET})
    frame.write_parquet(tmp_path / "text/pairs.parquet")
    return Artifact("clean", "toy", tmp_path / "text")


@pytest.fixture
def vocabulary(tmp_path: Path) -> Artifact:
    (tmp_path / "vocabulary").mkdir()
    train_tokenizer([pa.array(SOURCE), pa.array(TARGET)], Vocabulary(size=320)).save(
        str(tmp_path / "vocabulary/tokenizer.json")
    )
    return Artifact("learn_bpe", "toy", tmp_path / "vocabulary")


def rows_of(out: Path) -> list[dict[str, object]]:
    tables = [pa.ipc.open_file(pa.memory_map(str(path))).read_all() for path in sorted(out.glob("*.arrow"))]
    rows: list[dict[str, object]] = pa.concat_tables(tables).to_pylist()
    return rows


@pytest.mark.parametrize("pairs_per_shard", [1, 7, 1000])
def test_everything_is_every_line_whole_and_in_order(
    tmp_path: Path, text: Artifact, vocabulary: Artifact, pairs_per_shard: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.stages.shard.BATCH_PAIRS", 10)
    out = tmp_path / "out"
    out.mkdir()
    limits = Sharding(NO_LIMITS.min_pieces, NO_LIMITS.max_pieces, pairs_per_shard=pairs_per_shard)
    facts = shard.body(out, text, vocabulary, limits)
    pieces = TokenizerPair.load(vocabulary.path())
    source, target = pieces.encode_source(SOURCE), pieces.encode_target(TARGET)
    expected = [{"pair_id": i, "source": s, "target": t} for i, s, t in zip(IDS, source, target, strict=True)]
    assert rows_of(out) == expected
    assert facts == {
        "pairs": len(IDS),
        "dropped": 0,
        "source_pieces": sum(map(len, source)),
        "target_pieces": sum(map(len, target)),
        "shards": -(-len(IDS) // pairs_per_shard),
    }
    names = [path.name for path in sorted(out.iterdir())]
    assert names == [f"{n:05}.arrow" for n in range(facts["shards"])]


def test_files_can_be_mapped_without_copying(tmp_path: Path, text: Artifact, vocabulary: Artifact) -> None:
    shard.body(tmp_path, text, vocabulary, NO_LIMITS)
    before = pa.total_allocated_bytes()
    table = pa.ipc.open_file(pa.memory_map(str(tmp_path / "00000.arrow"))).read_all()
    assert pa.total_allocated_bytes() <= before
    assert table.schema.types == [pa.string(), pa.list_(pa.uint16()), pa.list_(pa.uint16())]


@pytest.mark.parametrize("limits", [Sharding(3, 20), Sharding(1, 400, 1.05), Sharding(1, 30, 3.0)])
def test_pairs_beyond_the_limits_are_dropped_and_counted(
    tmp_path: Path, text: Artifact, vocabulary: Artifact, limits: Sharding
) -> None:
    facts = shard.body(tmp_path, text, vocabulary, limits)
    pieces = TokenizerPair.load(vocabulary.path())
    lengths = [
        (len(s), len(t)) for s, t in zip(pieces.encode_source(SOURCE), pieces.encode_target(TARGET), strict=True)
    ]
    within = [
        i
        for i, (s, t) in zip(IDS, lengths, strict=True)
        if min(s, t) >= limits.min_pieces
        and max(s, t) <= limits.max_pieces
        and (not limits.max_ratio or max(s, t) <= limits.max_ratio * min(s, t))
    ]
    assert 0 < len(within) < len(IDS)
    assert [row["pair_id"] for row in rows_of(tmp_path)] == within
    assert (facts["pairs"], facts["dropped"]) == (len(within), len(IDS) - len(within))


def test_nothing_left_is_bad_data(tmp_path: Path, text: Artifact, vocabulary: Artifact) -> None:
    with pytest.raises(BadData, match="none of 53 pairs .*min_pieces=9000"):
        shard.body(tmp_path, text, vocabulary, Sharding(9000, 10_000))


def test_large_vocabularies_take_32_bits(vocabulary: Artifact, monkeypatch: pytest.MonkeyPatch) -> None:
    for size, kind in ((2**16, pa.uint16()), (2**16 + 1, pa.uint32())):
        monkeypatch.setattr(TokenizerPair, "target_size", size)
        assert Encoder(vocabulary.path(), NO_LIMITS).schema.field("source").type == pa.list_(kind)


def test_limits_keep_what_lies_on_them() -> None:
    source, target = np.array([2, 3, 10, 11, 4, 4]), np.array([3, 3, 10, 10, 8, 9])
    assert Sharding(3, 10, 2.0).keeps(source, target).tolist() == [False, True, True, False, True, False]


@pytest.mark.parametrize(
    ("field", "value"), [("min_pieces", -1), ("max_pieces", 0), ("max_ratio", 0.5), ("pairs_per_shard", 0)]
)
def test_impossible_values_are_refused(field: str, value: int) -> None:
    with pytest.raises(ValueError, match=rf"sharding\.{field} is .*, allowed is"):
        Sharding(**{field: value})  # type: ignore[arg-type]
