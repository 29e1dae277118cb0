"""How long an update takes, from the time of a part of its batch."""

from dataclasses import asdict
from pathlib import Path

import pytest

from model import speed
from model.config import Model, Training
from model.job import Job


@pytest.mark.parametrize(("batch", "sentences"), [({"batch_tokens": 1_000}, 100), ({"batch_sentences": 40}, 40)])
def test_the_whole_batch_takes_as_many_times_longer_as_it_has_pairs(
    batch: dict[str, int], sentences: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speed, "_seconds", lambda *_: (2.0, 2.0))
    model = asdict(Model(layers=1, d_model=8, d_ff=8, heads=1, d_k=8, d_v=8))
    config = {"model": model, "training": asdict(Training(**batch)), "vocabulary": 300, "length": 10}  # type: ignore[arg-type]
    assert speed.work(Job(config, {}, tmp_path))["seconds"] == 2.0 * sentences / 16
