"""Shards hold the pieces of whole lines, in order, within the limits; what is dropped is counted."""

from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from small_text import train_tokenizer

from infra.store.store import Artifact
from model.data.bpe import TokenizerPair
from tasks.corpus.noise import Augment
from tasks.stages.learn_bpe import Vocabulary
from tasks.stages.shard import KEEP_EVERY_PAIR, Encoder, Sharding, shard

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


def rows_of(out: Path) -> list[dict[str, Any]]:
    tables = [pa.ipc.open_file(pa.memory_map(str(path))).read_all() for path in sorted(out.glob("*.arrow"))]
    rows: list[dict[str, Any]] = pa.concat_tables(tables).to_pylist()
    return rows


@pytest.mark.parametrize("pairs_per_shard", [1, 7, 1000])
def test_everything_is_every_line_whole_and_in_order(
    tmp_path: Path, text: Artifact, vocabulary: Artifact, pairs_per_shard: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.stages.shard.BATCH_PAIRS", 10)
    out = tmp_path / "out"
    out.mkdir()
    limits = Sharding(KEEP_EVERY_PAIR.min_pieces, KEEP_EVERY_PAIR.max_pieces, pairs_per_shard=pairs_per_shard)
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
        "source_unknown": 0,
        "target_unknown": 0,
        "shards": -(-len(IDS) // pairs_per_shard),
    }
    names = [path.name for path in sorted(out.iterdir())]
    assert names == [f"{n:05}.arrow" for n in range(facts["shards"])]


def test_noised_copies_stand_beside_all_clean_pairs(
    tmp_path: Path, text: Artifact, vocabulary: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.stages.shard.BATCH_PAIRS", 10)
    for name in ("clean", "noised"):
        (tmp_path / name).mkdir()
    shard.body(tmp_path / "clean", text, vocabulary, Sharding(max_pieces=60))
    augment = Augment(caps=0.3, typos=0.9)
    facts = shard.body(tmp_path / "noised", text, vocabulary, Sharding(max_pieces=60), augment)
    rows = rows_of(tmp_path / "noised")
    copies = [row for row in rows if "+" in row["pair_id"]]
    assert [row for row in rows if row not in copies] == rows_of(tmp_path / "clean")
    pieces = TokenizerPair.load(vocabulary.path())
    wanted = [copy for pair in zip(IDS, SOURCE, TARGET, strict=True) for copy in augment.copies(*pair)]
    encoded = [(i, pieces.encode_source([s])[0], pieces.encode_target([t])[0]) for i, s, t in wanted]
    assert [tuple(row.values()) for row in copies] == [
        e for e in encoded if 0 < min(map(len, e[1:])) <= max(map(len, e[1:])) <= 60
    ]
    assert len(copies) > 5
    assert (facts["noised_copies"], facts["dropped"]) == (len(copies), len(IDS) - len(rows) + len(copies))


def test_pieces_that_the_vocabulary_lacks_are_counted(tmp_path: Path, text: Artifact) -> None:
    words = Vocabulary(size=260, tokens="words", joint=False, min_frequency=3)
    for name, lines in (("tokenizer.json", SOURCE), ("tokenizer.target.json", ["Hund"] * 9)):
        (tmp_path / "words").mkdir(exist_ok=True)
        train_tokenizer([pa.array(lines)], words).save(str(tmp_path / "words" / name))
    (tmp_path / "out").mkdir()
    facts = shard.body(tmp_path / "out", text, Artifact("learn_bpe", "words", tmp_path / "words"), KEEP_EVERY_PAIR)
    assert 0 < facts["source_unknown"] < facts["source_pieces"]
    assert facts["target_pieces"] - facts["target_unknown"] == sum(line.startswith("Hund ") for line in TARGET)


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


def test_long_pairs_can_be_cut(tmp_path: Path, text: Artifact, vocabulary: Artifact) -> None:
    limits = Sharding(min_pieces=1, max_pieces=9, too_long="cut")
    facts = shard.body(tmp_path, text, vocabulary, limits)
    pieces = TokenizerPair.load(vocabulary.path())
    source, target = pieces.encode_source(SOURCE), pieces.encode_target(TARGET)
    expected = [{"pair_id": i, "source": s[:9], "target": t[:9]} for i, s, t in zip(IDS, source, target, strict=True)]
    assert rows_of(tmp_path) == [row for row in expected if row["source"] and row["target"]]
    whole = [s and t and len(s) <= 9 and len(t) <= 9 for s, t in zip(source, target, strict=True)]
    assert facts["cut"] == facts["pairs"] - sum(map(bool, whole)) > 5
    assert facts["pairs"] + facts["dropped"] == len(IDS)
    assert facts["dropped"] == sum(not s or not t for s, t in zip(source, target, strict=True))
    (tmp_path / "noised").mkdir()
    noised = shard.body(tmp_path / "noised", text, vocabulary, limits, Augment(caps=1.0))
    assert (noised["cut"], noised["noised_copies"] > 0) == (facts["cut"], True), "pairs, not their copies"


def test_large_vocabularies_take_32_bits(vocabulary: Artifact, monkeypatch: pytest.MonkeyPatch) -> None:
    for size, kind in ((2**16, pa.uint16()), (2**16 + 1, pa.uint32())):
        monkeypatch.setattr(TokenizerPair, "target_size", size)
        assert Encoder(vocabulary.path(), KEEP_EVERY_PAIR).schema.field("source").type == pa.list_(kind)
