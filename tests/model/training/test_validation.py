"""What is watched at a dev check does not change what is trained."""

from dataclasses import replace
from pathlib import Path

import pytest
from small_training import MODEL, TRAINING, pairs, rows, run, weights, write_job, write_shards, write_vocabulary

from model.job import Job
from model.training.distributed import Ranks
from model.training.setup import build_trainer


def test_a_dev_set_learnt_by_heart_is_translated_well(tmp_path: Path) -> None:
    for name in ("shards", "dev"):
        write_shards(tmp_path / name, pairs(8))
    write_vocabulary(tmp_path / "vocabulary")
    training = replace(
        TRAINING, updates=250, batch_tokens=200, peak=5e-3, label_smoothing=0.0, dev_every=10, dev_bleu=8
    )
    job = write_job(tmp_path, model=replace(MODEL, p_drop=0.0, d_model=32), training=training)
    assert run(job)["facts"]["dev_perplexity"] < 1.1
    checks = [row for row in rows(job) if "dev_bleu" in row]
    assert [row["done"] for row in checks] == list(range(10, 251, 10))
    assert checks[0]["dev_bleu"] < 50
    assert checks[-1]["dev_bleu"] > 90
    assert all({"encoder_cosine", "attention_entropy", "attention_entropy_1"} <= row.keys() for row in checks)


def test_decoding_leaves_the_training_as_it_was(tmp_path: Path) -> None:
    without, with_it = (
        write_job(tmp_path, name=f"{sentences}", training=replace(TRAINING, dev_every=1, dev_bleu=sentences))
        for sentences in (0, 10)
    )
    run(without)
    run(with_it)
    assert weights(without) == weights(with_it)
    assert "dev_bleu" in rows(with_it)[1]
    assert not any("dev_bleu" in row for row in rows(without))


def test_a_decoding_that_others_would_not_wait_for_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job = Job.read(write_job(tmp_path, training=replace(TRAINING, dev_bleu=10)))
    trainer = build_trainer(job, Ranks())
    monkeypatch.setattr("model.decoding.translator.BATCH_PIECES", {"cpu": 1})
    assert "dev_bleu" in trainer.validation.bleu(trainer.step.model), "alone nobody waits"
    trainer.validation.ranks = Ranks(0, 2)
    assert trainer.validation.bleu(trainer.step.model) == {}
    assert "lower training.dev_bleu" in capsys.readouterr().err
