"""How long an update takes, from the time of a part of its batch."""

from dataclasses import asdict
from pathlib import Path

import pytest

from model import speed
from model.config import Model, Training
from model.job import Job


def job(out: Path, training: Training) -> Job:
    model = asdict(Model(layers=1, d_model=8, d_ff=8, heads=1, d_k=8, d_v=8))
    return Job({"model": model, "training": asdict(training), "vocabulary": 300, "length": 10}, {}, out)


@pytest.mark.parametrize(("batch", "sentences"), [({"batch_tokens": 1_000}, 100), ({"batch_sentences": 40}, 40)])
def test_the_whole_batch_takes_as_many_times_longer_as_it_has_pairs(
    batch: dict[str, int], sentences: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speed, "_seconds", lambda *_: (2.0, 2.0))
    training = Training(**batch)  # type: ignore[arg-type]
    assert speed.work(job(tmp_path, training))["seconds"] == 2.0 * sentences / 16


def test_an_update_of_a_training_that_warms_up_in_epochs_is_timed(tmp_path: Path) -> None:
    assert speed.work(job(tmp_path, Training(batch_sentences=2, warmup=0, warmup_epochs=1)))["seconds"] > 0
