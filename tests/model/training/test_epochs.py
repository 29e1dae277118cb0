"""What the facts of a training say of an epoch is what the epoch holds."""

from pathlib import Path

import pytest
from small_training import TRAINING, pairs, rows, run, write_job


def test_an_epoch_has_each_pair_once_and_the_minutes_are_measured(tmp_path: Path) -> None:
    job = write_job(tmp_path)
    facts = run(job)["facts"]
    read = pairs(40)
    assert facts["epoch_source_tokens"] == sum(len(source) + 1 for source, _ in read)
    assert facts["epoch_target_tokens"] == sum(len(target) + 1 for _, target in read)
    epochs = [row["epoch"] for row in rows(job) if "epoch" in row]
    assert facts["epochs"] == pytest.approx(epochs[-1], abs=1e-4)
    assert len(epochs) == TRAINING.updates
    firsts = [number for number, epoch in enumerate(epochs, start=1) if epoch % 1 == 0]
    assert facts["epoch_batches"] in {b - a for a, b in zip([0, *firsts], firsts, strict=False)}
    assert facts["epoch_minutes"] == pytest.approx(facts["seconds"] / 60 / epochs[-1], rel=0.1, abs=1e-3)
