"""Signs of collapse: curves from the rows of a training, and their pictures."""

import json
from pathlib import Path

import pytest

from tasks.evaluation import network_plots
from tasks.evaluation.collapse import LayerCurves, last_values, layer_curves
from tasks.evaluation.html import layers_picture
from tasks.evaluation.plots import DARK, LIGHT

PNG = b"\x89PNG"


def curves(layers: int = 2) -> LayerCurves:
    return {
        sign: {layer: [(10, 0.1 * layer), (20, 0.2 * layer)] for layer in range(1, layers + 1)}
        for sign in ("encoder_cosine", "decoder_norm", "attention_entropy")
    }


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


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_pictures_are_drawn_for_one_training_and_for_several_the_same_each_time(theme: object) -> None:
    for trainings in ({"": curves()}, {"post-ln": curves(), "pre-ln": curves(1)}, {"new": curves(), "old": {}}):
        drawn = network_plots.layers(trainings, theme)  # type: ignore[arg-type]
        assert drawn.startswith(PNG)
        assert drawn == network_plots.layers(trainings, theme)  # type: ignore[arg-type]
    one, two = (network_plots.layers({"": curves(n)}, LIGHT) for n in (1, 2))
    assert one != two
    assert layers_picture({"a": {}, "b": {}}) is None
