"""Signs of collapse: curves from the rows of a training, and their pictures."""

import json
from pathlib import Path

from tasks.evaluation.collapse import last_values, layer_curves


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
    assert last_values(found) == {"encoder_cosine": [0.625, 1.0], "decoder_norm": [8.0]}
