"""Tests of ``decoding.precision``: a search in bfloat16 finds what one in float32 does; devices refuse what they lack.

That its logits are near is in ``tests/model/test_devices.py``, for a GPU too.
"""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from small_training import MODEL, SIZE, TRAINING, pairs, write_job, write_shards, write_vocabulary

from model.config import Decoding
from model.data.bpe import TokenizerPair
from model.decoding.cached_decoder import decoder_starter
from model.decoding.translator import Translator
from model.job import Job, StopSignal
from model.network.reference import Reference
from model.training.distributed import Ranks
from model.training.setup import build_trainer

WIDE = replace(MODEL, layers=2, d_model=32, d_ff=64, d_k=16, d_v=16, p_drop=0.0)


def test_torchs_layers_are_not_searched_in_bfloat16() -> None:
    with pytest.raises(ValueError, match="decoding.precision is 'bf16', allowed is fp32 or tf32 where model.attention"):
        decoder_starter(Reference(replace(MODEL, attention="torch"), SIZE, SIZE), bfloat16=True)


@pytest.mark.slow  # it trains a model until it is sure of its outputs
def test_a_trained_model_finds_the_hypotheses_of_float32(tmp_path: Path) -> None:
    write_shards(tmp_path / "shards", pairs(3_000, longest=5))
    write_shards(tmp_path / "dev", pairs(20, seed=1, longest=5))
    vocabulary = write_vocabulary(tmp_path / "vocabulary")
    training = replace(TRAINING, updates=500, batch_tokens=600, warmup=50, checkpoint_every=500, dev_every=500)
    trainer = build_trainer(Job.read(write_job(tmp_path, model=WIDE, training=training, log_seconds=9e9)), Ranks())
    trainer.run(StopSignal())
    model, tokenizers = trainer.step.model.eval(), TokenizerPair.load(vocabulary)
    given = pairs(300, seed=2, longest=5)
    exact, narrow = (
        [
            hypothesis.pieces
            for hypothesis in Translator(model, tokenizers, torch.device("cpu"), bfloat16=bfloat16).search(
                [source for source, _ in given], Decoding()
            )
        ]
        for bfloat16 in (False, True)
    )
    right = sum(pieces == tuple(target) for pieces, (_, target) in zip(exact, given, strict=True))
    assert right > 0.8 * len(given), "the model has learnt its task"
    same = sum(a == b for a, b in zip(exact, narrow, strict=True))
    assert same >= 0.99 * len(given)
