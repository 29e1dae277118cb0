"""The line of a training's progress."""

import pytest

from tasks.engine.progress import describe_metrics


@pytest.mark.parametrize(
    ("seconds_left", "end"), [(90.0, "1 min 30 s left"), (0.0, "saves its last checkpoints")], ids=["minutes", "over"]
)
def test_newest_metrics_stand_in_the_line(seconds_left: float, end: str) -> None:
    rows = [
        {"loss": 4.0, "seconds_left": 200.0},
        {"loss": 3.21, "tokens_per_second": 5210, "seconds_left": seconds_left},
    ]
    assert describe_metrics(rows) == f"loss 3.210 · 5,210 tokens/s · {end}"
