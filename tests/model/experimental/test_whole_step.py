"""Tests of whole updates: on a CPU, uncompiled and without a graph, they are the plain updates."""

from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_training import MODEL, TRAINING, write_job

from model.config import check_whole_updates
from model.data.packing import BatchShape, load_packed
from model.data.shards import Shards
from model.experimental.whole_step import WARM_UPDATES, WholeStep
from model.job import Job
from model.train import trainer_for
from model.training.distributed import Ranks

PACKED = replace(TRAINING, batching="packed", clip_norm=0.5)


def test_ten_whole_updates_are_the_plain_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    plain, whole = (
        trainer_for(Job.read(write_job(tmp_path, name=name, model=MODEL, training=PACKED)), Ranks())
        for name in ("plain", "whole")
    )
    step = WholeStep(PACKED, whole.step.objective, whole.step.optimizer, Ranks(), torch.device("cpu"), 0)
    recorded = []

    def record(work: Callable[[], None]) -> Callable[[], None]:
        recorded.append(work)
        return work

    step.record = record
    whole.step = step
    for number, update in enumerate(islice(plain.updates(), 10)):
        if number == 5:  # a batch of another shape
            batch = load_packed(Shards(tmp_path / "shards"), np.arange(30), BatchShape(384, 384, 64, 10, 10))
            update = replace(update, micro_batches=[batch], pieces=batch.pieces)
        losses = [trainer.train_step(update).sums for trainer in (plain, whole)]
        torch.testing.assert_close(*losses, rtol=1e-5, atol=0)
        assert len(recorded) == (number >= WARM_UPDATES)
    for mine, theirs in zip(whole.step.model.parameters(), plain.step.model.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("change", "site"),
    [
        ({}, {"on_cpu": True}),
        ({"batching": "buckets"}, {}),
        ({"attention_coverage_cross": 0.1}, {}),
        ({}, {"ranks": 2}),
        ({}, {"micro_batch_tokens": 100}),
    ],
)
def test_what_one_graph_does_not_support_is_refused(change: dict[str, Any], site: dict[str, Any]) -> None:
    usual: dict[str, Any] = {"on_cpu": False, "ranks": 1, "micro_batch_tokens": 0}
    check_whole_updates(PACKED, "update", **usual)
    check_whole_updates(replace(PACKED, **change), "always", **usual | site)
    with pytest.raises(ValueError, match="REPRO_COMPILE"):
        check_whole_updates(replace(PACKED, **change), "update", **usual | site)


@pytest.mark.parametrize(
    ("site", "name"),
    [({"compile": "update"}, "REPRO_COMPILE"), ({"packed_attention": "own"}, "REPRO_PACKED_ATTENTION")],
)
def test_a_training_on_a_cpu_refuses_what_is_experimental(tmp_path: Path, site: dict[str, Any], name: str) -> None:
    with pytest.raises(ValueError, match=name):
        trainer_for(Job.read(write_job(tmp_path, training=PACKED, **site)), Ranks())
