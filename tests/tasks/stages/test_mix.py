"""Synthetic pairs from blocks of translations, by hand."""

from pathlib import Path

import polars as pl
import pytest

from infra.errors import BadData
from infra.store.store import Artifact
from tasks.stages.mix import mix, synthetic_pairs

BLOCK = pl.DataFrame(
    {
        "pair_id": ["news:7", "news:3", "a.b:12"],
        "source": ["Ein Hund.", "Zu lang.", "Regen: viel."],
        "hypotheses": [["a dog.", "one dog."], [], ["rain: much."]],
    },
    schema_overrides={"hypotheses": pl.List(pl.String)},
)


def test_the_best_translation_is_the_source_behind_the_tag_and_lines_without_one_are_left_out() -> None:
    assert synthetic_pairs(BLOCK, "<BT>").rows() == [
        ("bt-news:7", "bt-news", "<BT> a dog.", "Ein Hund."),
        ("bt-a.b:12", "bt-a.b", "<BT> rain: much.", "Regen: viel."),
    ]
    assert synthetic_pairs(BLOCK, "")["source"].to_list() == ["a dog.", "rain: much."]


def test_a_reverse_model_that_translates_nothing_is_named(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("clean", "translated", "out")]
    for folder in folders:
        folder.mkdir()
    pairs = pl.DataFrame({"pair_id": ["c:0"], "corpus": ["c"], "source": ["a"], "target": ["b"]})
    pairs.write_parquet(folders[0] / "pairs.parquet")
    BLOCK.filter(pl.col("pair_id") == "news:3").write_parquet(folders[1] / "00000.parquet")
    translated = Artifact("translate_text", "t", folders[1], facts={"lines": 1})
    with pytest.raises(BadData, match="none of 1 monolingual lines has a translation; train the reverse model"):
        mix.body(folders[2], Artifact("clean", "c", folders[0]), translated, "<BT>")
