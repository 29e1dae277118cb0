"""Vocabulary and shards are the same, byte for byte, for any number of ranges and workers."""

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from infra.store.store import Artifact
from tasks.bpe import word_counts
from tasks.corpus.noise import Augment
from tasks.stages import shard
from tasks.stages.learn_bpe import Vocabulary, learn_bpe, untrained_tokenizer

PAIRS = 2_000
WORDS = ["dog", "cat", "runs", "The", "a,", "b.", "Ü", "don't", "x86", "ﬁne", "日本", "\u00a0", " "]


@pytest.fixture
def text(tmp_path: Path) -> Artifact:
    """Pairs in row groups of a size that fits nothing."""
    chance = random.Random(1)

    def lines() -> list[str]:
        words = [*WORDS, *(f"w{chance.randrange(500)}" for _ in range(40))]
        return [" ".join(chance.choices(words, k=chance.randint(0, 12))) for _ in range(PAIRS)]

    columns = {"pair_id": [f"toy:{n}" for n in range(PAIRS)], "source": lines(), "target": lines()}
    (tmp_path / "text").mkdir()
    pq.write_table(pa.table(columns), tmp_path / "text/pairs.parquet", row_group_size=170)
    return Artifact("clean", "toy", tmp_path / "text")


def prepared(out: Path, text: Artifact, *, joint: bool = True) -> dict[str, bytes]:
    """All files of both stages."""
    for stage in ("learn_bpe", "shard"):
        (out / stage).mkdir(parents=True)
    learn_bpe.body(out / "learn_bpe", text, Vocabulary(size=300, joint=joint))
    vocabulary = Artifact("learn_bpe", "toy", out / "learn_bpe")
    facts = shard.shard.body(
        out / "shard", text, vocabulary, shard.Sharding(max_pieces=40, pairs_per_shard=333), Augment(typos=0.1)
    )
    assert 0 < facts["dropped"] < PAIRS
    return {f"{path.relative_to(out)}": path.read_bytes() for path in sorted(out.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("joint", [True, False])
def test_ranges_parts_and_workers_do_not_show(
    tmp_path: Path, text: Artifact, monkeypatch: pytest.MonkeyPatch, *, joint: bool
) -> None:
    monkeypatch.setattr(shard, "BATCH_PAIRS", 90)
    plain = prepared(tmp_path / "plain", text, joint=joint)
    assert len(plain) > 5
    monkeypatch.setattr(word_counts, "RANGE_PAIRS", 400)
    monkeypatch.setattr(word_counts, "PART_PAIRS", 150)
    monkeypatch.setattr(shard, "RANGE_PAIRS", 50)
    assert prepared(tmp_path / "ranges", text, joint=joint) == plain
    monkeypatch.setenv("REPRO_WORKERS", "2")
    assert prepared(tmp_path / "workers", text, joint=joint) == plain


def test_encoding_a_range_twice_gives_the_same_file(tmp_path: Path, text: Artifact) -> None:
    """A cluster repeats the call of a worker that it lost."""
    prepared(tmp_path / "once", text)
    pairs, vocabulary = text.path() / "pairs.parquet", tmp_path / "once/learn_bpe"
    encoder = shard.RangeEncoder(pairs, vocabulary, shard.KEEP_EVERY_PAIR, tmp_path, 90)
    (rows,) = shard.row_ranges(pairs)
    counter = word_counts.ChunkCounter(pairs, ("source",), untrained_tokenizer(Vocabulary()), tmp_path, parts=3)
    first = encoder.encode(0, rows).read_bytes()
    assert encoder.encode(0, rows).read_bytes() == first
    counts = [(counter.count(0, (0, 1)), (tmp_path / "0.range.arrow").read_bytes()) for _ in range(2)]
    assert counts[0][0] == counts[1][0] == 340
    assert sorted(path.name for path in tmp_path.glob("*.arrow*")) == ["0.arrow", "0.range.arrow"]
