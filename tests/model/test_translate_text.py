"""The job that translates training text: blocks that do not depend on where an earlier attempt stopped."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from small_text import train_tokenizer

from model.config import Decoding, Model
from model.decoding.translator import Translator
from model.job import Job
from model.network.transformer import Transformer
from model.network.weights import save_model
from model.translate_text import texts, work
from tasks.stages.learn_bpe import Vocabulary

LINES = ["Two dogs run.", "A man sings.", "The green meadow.", " ", "It's 2014.", "Rain " * 70, "A dog.", "Run!", "No."]
SHAPE = Model(
    layers=1, d_model=32, d_ff=64, heads=2, d_k=16, d_v=16, init="normal", positions="learned", max_positions=64
)
DECODING = Decoding(beam=8, alpha=0.0, max_extra=40)


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    monkeypatch.setattr("model.translate_text.StopSignal", lambda: SimpleNamespace(received=False))
    torch.manual_seed(1)
    inputs = {name: tmp_path / name for name in ("weights", "vocabulary", "text")}
    for folder in (*inputs.values(), tmp_path / "out"):
        folder.mkdir()
    tokenizer = train_tokenizer([pa.array(LINES * 2)], Vocabulary(size=280, min_frequency=1))
    tokenizer.save(str(inputs["vocabulary"] / "tokenizer.json"))
    size = tokenizer.get_vocab_size()
    save_model(inputs["weights"], Transformer(SHAPE, size, size))
    table = pa.table({"pair_id": [f"news:{n}" for n in range(len(LINES))], "source": LINES})
    pq.write_table(table, inputs["text"] / "pairs.parquet")
    config = {"decoding": DECODING.search(), "n_best": 1, "lines": 8, "block_lines": 3}
    return Job(config, inputs, tmp_path / "out")


def rows(out: Path) -> list[dict[str, Any]]:
    return [row for path in sorted(out.glob("*.parquet")) for row in pq.read_table(path).to_pylist()]


def test_blocks_are_searched_by_their_lines_and_a_missing_one_is_made_again(job: Job) -> None:
    facts = work(job)
    made = rows(job.out)
    assert [row["pair_id"] for row in made] == [f"news:{n}" for n in range(8)]

    translator = Translator.load(job.inputs["weights"], job.inputs["vocabulary"], device="cpu")
    sources = translator.vocabulary.encode_source(LINES[:8])
    assert len(sources[5]) > translator.longest_source
    sources[5] = []
    found: list[Any] = []
    for block in (range(0, 3), range(3, 6), range(6, 8)):  # other batches may round in another way
        found += translator.search_n_best(sources[block.start : block.stop], DECODING, 1)
    assert [row["hypotheses"] for row in made] == [texts(translator, each) for each in found]
    assert any(row["hypotheses"] for row in made[3:])
    assert made[5]["hypotheses"] == []
    assert (facts["lines"], facts["untranslated"]) == (8, sum(not row["hypotheses"] for row in made))

    kept = {path: path.stat().st_ino for path in job.out.glob("0000[02].parquet")}
    (job.out / "00001.parquet").unlink()
    again = work(job)
    assert again["untranslated"] == facts["untranslated"]
    alone = json.loads((job.out / "metrics.jsonl").read_text().splitlines()[-1])["block_seconds"]
    assert again["seconds"] > alone > 0, "those of all attempts"
    assert rows(job.out) == made
    assert {path: path.stat().st_ino for path in kept} == kept
