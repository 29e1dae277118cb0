"""Curves are read from the log of a training."""

import json
from pathlib import Path

from tasks.evaluation.training_log import layer_curves, training_curves


def test_curves_are_the_numbered_metrics_by_layer(tmp_path: Path) -> None:
    rows = [
        {"done": 10, "loss": 3.0, "encoder_cosine": 0.5, "encoder_cosine_1": 0.25, "encoder_cosine_10": 0.75},
        {"done": 20, "encoder_cosine_1": 0.5, "encoder_cosine_10": 1, "decoder_norm_1": 8.0, "other_1": 3.0},
        {"done": 20, "encoder_cosine_1": 0.625},
        {"facts": {"encoder_cosine_1": 9}},
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = layer_curves(tmp_path / "metrics.jsonl")
    assert found == {
        "encoder_cosine": {1: [(10, 0.25), (20, 0.625)], 10: [(10, 0.75), (20, 1.0)]},
        "decoder_norm": {1: [(20, 8.0)]},
    }


def metrics_row(update: int, **values: float) -> str:
    return json.dumps({"time": 1.0, "done": update, "total": 40, **values})


def test_rows_after_the_checkpoint_of_a_resumed_training_do_not_count(tmp_path: Path) -> None:
    rows = [metrics_row(n, loss=float(n), nll=1.0, learning_rate=0.1) for n in (1, 2, 3)]
    again = [metrics_row(2, loss=7.0, nll=1.0, learning_rate=0.1), metrics_row(2, dev_perplexity=5.0)]
    (tmp_path / "metrics.jsonl").write_text("\n".join([*rows, metrics_row(2, dev_perplexity=6.0), *again]))
    curves = training_curves(tmp_path / "metrics.jsonl")
    assert curves.updates.tolist() == [1, 2]
    assert curves.loss.tolist() == [1, 7]
    assert curves.dev_perplexity.tolist() == [5]
