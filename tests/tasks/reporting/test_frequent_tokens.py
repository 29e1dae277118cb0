"""The table of tokens is a count of the text's own pieces, with names that a person reads."""

from collections import Counter
from pathlib import Path

import polars as pl
import pyarrow as pa
from small_text import train_tokenizer
from small_training import write_shards

from model.data.bpe import TokenizerPair
from model.data.shards import Shards
from tasks.reporting.frequent_tokens import TOKENS_SHOWN, most_frequent, token_counts
from tasks.stages.learn_bpe import Vocabulary

SOURCE = ["the dog, the dog and the cat"] * 3 + ['a dog = "one" ☃']
TARGET = ["der Hund, der Hund und die Katze"] * 4


def test_the_table_counts_every_piece_and_its_file_reads_back(tmp_path: Path) -> None:
    (tmp_path / "vocabulary").mkdir()
    tokenizer = train_tokenizer([pa.array(SOURCE), pa.array(TARGET)], Vocabulary(size=280))
    tokenizer.save(f"{tmp_path}/vocabulary/tokenizer.json")
    vocabulary = TokenizerPair.load(tmp_path / "vocabulary")
    texts = {"source": vocabulary.encode_source(SOURCE), "target": vocabulary.encode_target(TARGET)}
    shards = Shards(write_shards(tmp_path / "shards", list(zip(*texts.values(), strict=True))))
    table = token_counts(shards, vocabulary)
    for side, lines in texts.items():
        rows = table.filter(side=side)
        expected = Counter(piece for line in lines for piece in line)
        assert dict(rows.select("id", "count").iter_rows()) == expected
        assert rows["count"].is_sorted(descending=True)
        assert abs(rows["share"].sum() - 1) < 1e-12
        assert most_frequent(table)[side] == rows.head(TOKENS_SHOWN).to_dicts()
    by_name = dict(table.filter(side="source").select("token", "count").iter_rows())
    assert by_name["▁the"] == 9
    assert {'"': 2, "=": 1}.items() <= by_name.items()
    assert "\\xe2" in by_name, "a byte of a character of several pieces"
    table.write_csv(tmp_path / "tokens.csv")
    assert pl.read_csv(tmp_path / "tokens.csv").equals(table)
