"""The data of the pictures: the attention of the first example."""

import json
from pathlib import Path

import numpy as np

from tasks.reporting.pictures import all_heads


def test_all_heads_are_those_of_the_first_example(tmp_path: Path) -> None:
    described = [{"pair_id": "a:0", "source_pieces": ["▁A", "▁dog", "</s>"], "hypothesis_pieces": ["▁Ein", "</s>"]}]
    (tmp_path / "attention.json").write_text(json.dumps(described))
    weights = {"cross_0": np.ones((2, 2, 2, 3)), "encoder_0": np.ones((2, 2, 3, 3)), "decoder_0": np.ones((2, 2, 2, 2))}
    np.savez(tmp_path / "attention.npz", **weights)  # type: ignore[arg-type]
    for found, rows, columns in all_heads(tmp_path).values():
        assert found.shape == (2, 2, len(rows), len(columns))
    assert all_heads(tmp_path)["decoder: translation over itself"][2] == ["<s>", "▁Ein"]
