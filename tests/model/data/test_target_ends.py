"""A target may end in two eos in training: both are labels, in padded and packed batches, and count in every limit."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from small_training import MODEL, TRAINING, run, write_job, write_shards

from model.config import TargetEnds
from model.config.special_pieces import BOS, EOS, PAD
from model.data.batch import Batch
from model.data.batches import BatchSampler, Cursor, check_lengths
from model.data.shards import Shards
from model.errors import JobError

ROWS = [([5, 6, 7], [8]), ([9], []), ([4, 4, 5, 6], [7, 9])]


def targets_of(batch: Batch) -> list[tuple[list[int], list[int]]]:
    """Decoder inputs and labels of each of ``ROWS``."""
    if batch.packing:
        bounds = list(pairwise(batch.packing.target.cu_seqlens.tolist()[: len(ROWS) + 1]))
        return [(batch.target[a:b].tolist(), batch.labels[a:b].tolist()) for a, b in bounds]
    assert batch.label_indices is not None
    labels = np.full(batch.target.shape, PAD)
    labels.reshape(-1)[batch.label_indices.numpy()] = batch.labels.numpy()
    inputs = batch.target.tolist()
    return [([x for x in row if x != PAD], [x for x in y if x != PAD]) for row, y in zip(inputs, labels, strict=True)]


@pytest.mark.parametrize("batching", ["buckets", "packed"])
def test_after_eos_the_label_is_eos(tmp_path: Path, batching: str) -> None:
    shards = Shards(write_shards(tmp_path / "shards", ROWS, files=1))
    sampler = BatchSampler(shards, 30, 1, batching, target_ends="eos+eos")
    assert sampler.target.tolist() == [3, 2, 4]
    update = sampler.read(np.arange(3), Cursor(), 0, 1, 0)
    assert update.pieces == update.micro_batches[0].pieces == 9
    expected = [([BOS, *target, EOS], [*target, EOS, EOS]) for _, target in ROWS]
    assert targets_of(update.micro_batches[0]) == expected


def test_learned_positions_and_the_count_of_tokens_include_both(tmp_path: Path) -> None:
    shards = Shards(write_shards(tmp_path / "five", [([5], [5] * 5)]))
    learned = replace(MODEL, positions="learned", max_positions=6)
    check_lengths(shards, learned)
    with pytest.raises(JobError, match="7 target pieces, more than the 6 learned positions"):
        check_lengths(shards, learned, "eos+eos")
    once, twice = (
        run(write_job(tmp_path, name=ends, training=replace(TRAINING, updates=0, epochs=1, target_ends=ends)))["facts"]
        for ends in get_args(TargetEnds)
    )
    assert twice["target_tokens"] == once["target_tokens"] + 40, "one more of each pair"
