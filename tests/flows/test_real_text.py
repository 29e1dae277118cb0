"""Real corpora pass through every data stage, and the counts are those of the corpora."""

from pathlib import Path

import polars as pl
import pyarrow.ipc
import pytest
from small_pipeline import run_small

from flows.runner.find_run import find_run
from flows.runner.outcome import Outcome
from flows.runner.request import RunRequest
from model.data.bpe import TokenizerPair


def facts(outcome: Outcome, stage: str, item: str = "") -> dict[str, object]:
    return next(row.facts for row in outcome.rows if (row.stage, row.item) == (stage, item))


def folder(outcome: Outcome, stage: str, item: str = "") -> Path:
    return Path(next(row.path for row in outcome.rows if (row.stage, row.item) == (stage, item)))


@pytest.fixture
def multi30k(real_text: Path) -> Outcome:
    return run_small(RunRequest("multi30k-ende", until="shard"))


def test_multi30k_reaches_the_shards_unchanged(multi30k: Outcome) -> None:
    assert facts(multi30k, "prepare_sets", "val")["pairs"] == 1014
    assert facts(multi30k, "prepare_sets", "test_2016_flickr")["pairs"] == 1000
    cleaned = facts(multi30k, "clean")
    assert cleaned["read"] == 29_000
    assert isinstance(cleaned["pairs"], int)
    assert 28_900 < cleaned["pairs"] < 29_000
    pairs = pl.read_parquet(folder(multi30k, "clean") / "pairs.parquet")
    rejected = pl.read_parquet(folder(multi30k, "clean") / "rejected.parquet")
    assert len(pairs) + len(rejected) == 29_000
    known = set(pl.read_parquet(folder(multi30k, "prepare_sets", "test_2016_flickr") / "pairs.parquet")["target"])
    assert not known & set(pairs["target"])
    assert pairs["pair_id"].to_list() != sorted(pairs["pair_id"].to_list()), "shuffled"

    pieces = TokenizerPair.load(folder(multi30k, "learn_bpe"))
    assert pieces.source_size == find_run("multi30k-ende").vocabulary.size
    text = {row["pair_id"]: row for row in pairs.iter_rows(named=True)}
    (file,) = folder(multi30k, "shard", "train").glob("*.arrow")
    with pyarrow.memory_map(str(file)) as mapped:
        table = pyarrow.ipc.open_file(mapped).read_all()
    for at in range(0, table.num_rows, 2_000):
        row = table.slice(at, 1).to_pylist()[0]
        assert pieces.decode_target(row["target"]) == text[row["pair_id"]]["target"]
        assert pieces.encode_source([text[row["pair_id"]]["source"]]) == [row["source"]]
