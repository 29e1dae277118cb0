"""Tests of the training benchmark at a toy size: contestants do the same work and the report is complete."""

import json

from benchmarks.throughput import measure, table

TOY = ["--size", "toy", "--rounds", "2", "--updates", "3", "--warmup", "1", "--pairs", "200", "--tokens", "200"]


def test_contestants_train_on_the_same_pairs() -> None:
    report = measure([*TOY, "--peers", "torch"])
    own, torch_peer = report["contestants"]["own"], report["contestants"]["torch"]
    for name in ("pairs", "pairs_digest", "target_pieces", "padding", "flops_per_target_piece"):
        assert own[name] == torch_peer[name], name
    assert own["pairs"] >= 6
    for a, b in zip(own["rounds"], torch_peer["rounds"], strict=True):
        assert (a["pairs"], a["target_pieces"], a["cells"]) == (b["pairs"], b["target_pieces"], b["cells"])
    ratio = report["ratios"]["own/torch"]["cpu"]
    assert 0 < ratio["least"] <= ratio["median"] <= ratio["most"]
    assert json.loads(json.dumps(report)) == report
    assert "own/torch: " in table(report)
