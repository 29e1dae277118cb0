"""Curves of a training on the site: every measured value at its update, once."""

import json
from pathlib import Path

import pytest

from flows.website.plots import MOST_POINTS, training_curves


@pytest.mark.parametrize("updates", [3, 2 * MOST_POINTS + 1])
def test_every_dev_check_is_drawn_where_a_training_row_has_the_same_update(updates: int, tmp_path: Path) -> None:
    rows = [{"done": update, "loss": 2.0, "perplexity": 7.5} for update in range(1, updates + 1)]
    checks = [{"done": update, "dev_perplexity": float(update)} for update in (2, updates)]
    repeated = [{"done": 2, "loss": 1.0, "perplexity": 6.5}]  # of a training that was resumed
    (tmp_path / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows + checks + repeated))
    drawn = training_curves(tmp_path / "metrics.jsonl", "demo/1")
    assert drawn["x"] == sorted(set(drawn["x"]))
    values = {
        each["name"]: dict(zip(drawn["x"], each["series"][0]["values"], strict=True)) for each in drawn["measures"]
    }
    assert {x: y for x, y in values["dev_perplexity"].items() if y is not None} == {2: 2.0, updates: float(updates)}
    assert values["loss"][2] == 1.0
    assert [each["name"] for each in drawn["measures"] if each["log"]] == ["perplexity", "dev_perplexity"]


def test_a_training_that_ended_early_ends_at_its_last_update(tmp_path: Path) -> None:
    rows = [{"done": 1, "total": 900, "loss": 2.0}, {"done": 900, "total": 900, "facts": {"updates": 1}}]
    (tmp_path / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert training_curves(tmp_path / "metrics.jsonl", "demo/1")["x"] == [1]
