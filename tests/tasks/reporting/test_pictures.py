"""The data of the pictures: the attention of the first example and the curves of a training."""

import json
from pathlib import Path

import numpy as np

from tasks.reporting.pictures import all_heads, training_curves


def metrics_row(update: int, **values: float) -> str:
    return json.dumps({"time": 1.0, "done": update, "total": 40, **values})


def test_all_heads_are_those_of_the_first_example_where_they_were_kept(tmp_path: Path) -> None:
    described = [{"pair_id": "a:0", "source_pieces": ["▁A", "▁dog", "</s>"], "hypothesis_pieces": ["▁Ein", "</s>"]}]
    (tmp_path / "attention.json").write_text(json.dumps(described))
    weights = {"cross_0": np.ones((2, 2, 2, 3)), "encoder_0": np.ones((2, 2, 3, 3)), "decoder_0": np.ones((2, 2, 2, 2))}
    np.savez(tmp_path / "attention.npz", cross_0=weights["cross_0"])
    assert all_heads(tmp_path) == {}
    np.savez(tmp_path / "attention.npz", **weights)  # type: ignore[arg-type]
    for found, rows, columns in all_heads(tmp_path).values():
        assert found.shape == (2, 2, len(rows), len(columns))
    assert all_heads(tmp_path)["decoder: translation over itself"][2] == ["<s>", "▁Ein"]


def test_the_later_row_of_an_update_counts(tmp_path: Path) -> None:
    rows = [metrics_row(n, loss=float(n), nll=1.0, learning_rate=0.1) for n in (1, 2, 3)]
    again = [metrics_row(2, loss=7.0, nll=1.0, learning_rate=0.1), metrics_row(2, dev_perplexity=5.0)]
    (tmp_path / "metrics.jsonl").write_text("\n".join([*rows, metrics_row(2, dev_perplexity=6.0), *again]))
    columns = training_curves(tmp_path / "metrics.jsonl")
    assert columns["updates"].tolist() == [1, 2, 3]
    assert columns["loss"].tolist() == [1, 7, 3]
    assert columns["dev_perplexity"].tolist() == [5]
