"""Tests of dev checks: their metrics, and that they do not change the training."""

from dataclasses import replace
from pathlib import Path

from small_training import MODEL, TRAINING, pairs, rows, run, weights, write_job, write_shards, write_vocabulary


def test_a_memorised_dev_set_has_a_high_bleu(tmp_path: Path) -> None:
    for name in ("shards", "dev"):
        write_shards(tmp_path / name, pairs(8))
    write_vocabulary(tmp_path / "vocabulary")
    training = replace(
        TRAINING, updates=250, batch_tokens=200, peak=5e-3, label_smoothing=0.0, dev_every=25, dev_bleu=8
    )
    job = write_job(tmp_path, model=replace(MODEL, p_drop=0.0, d_model=32), training=training)
    assert run(job)["facts"]["dev_perplexity"] < 1.1
    checks = [row for row in rows(job) if "dev_bleu" in row]
    assert [row["done"] for row in checks] == list(range(25, 251, 25))
    assert checks[0]["dev_bleu"] < 50
    assert checks[-1]["dev_bleu"] > 90
    expected = {
        "encoder_cosine",
        "decoder_cosine_1",
        "encoder_norm_1",
        "attention_entropy_1",
        "residual_ratio_decoder_cross_1",
        "attention_coverage_cross",
    }
    assert all(expected <= row.keys() for row in checks)


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
