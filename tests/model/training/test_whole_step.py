"""Tests of updates as one compiled graph; that the graph is recorded and replayed on a GPU is in ``test_gpu.py``."""

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from small_training import MODEL, TRAINING, write_job
from torch._dynamo.testing import CompileCounterWithBackend
from torch._dynamo.utils import counters

from model.config.job_checks import check_whole_updates
from model.data.batches import load_packed
from model.data.packing import BatchShape
from model.data.shards import Shards
from model.job import Job
from model.network.dropout import Dropout
from model.training.distributed import Ranks
from model.training.setup import build_trainer
from model.training.trainer import Trainer
from model.training.whole_step import WARM_UPDATES, WholeStep

DROPPING = replace(MODEL, p_drop_attention=0.1)
PACKED = replace(TRAINING, batching="packed", clip_norm=0.5)


def whole(trainer: Trainer) -> WholeStep:
    """A ``WholeStep`` for the trainer's objective and optimizer."""
    step = trainer.step
    return WholeStep(PACKED, step.objective, step.optimizer, Ranks(), torch.device("cpu"), 0)


def test_ten_updates_are_one_graph_compiled_once_and_equal_the_plain_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As on a GPU: the compiler does not take the random bits of a CPU.
    monkeypatch.setattr(Dropout, "forward", lambda self, x: F.dropout(x, self.p, self.training))
    torch._dynamo.reset()
    counters.clear()
    graphs = CompileCounterWithBackend("aot_eager")
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=graphs))
    recorded = []

    def record(work: Callable[[], None]) -> Callable[[], None]:
        recorded.append(work)
        return lambda: work()

    trainers = [
        build_trainer(Job.read(write_job(tmp_path, name=name, model=DROPPING, training=PACKED)), Ranks())
        for name in ("plain", "whole")
    ]
    step = whole(trainers[1])
    step.record, trainers[1].step = record, step
    pieces = set()
    for number, update in enumerate(islice(trainers[0].updates(), 10)):
        if number == 5:  # a batch of another shape
            batch = load_packed(Shards(tmp_path / "shards"), np.arange(30), BatchShape(384, 384, 64, 10, 10))
            update = replace(update, micro_batches=[batch], pieces=batch.pieces)
        pieces.add(update.pieces)
        losses = [trainer.train_step(update).sums for trainer in trainers]
        torch.testing.assert_close(*losses, rtol=1e-5, atol=0)
        norms = [trainer.step.gradient_norm() for trainer in trainers]
        torch.testing.assert_close(*norms, rtol=1e-5, atol=0)
        assert trainers[0].step.learning_rate == trainers[1].step.learning_rate
        assert len(recorded) == (number >= WARM_UPDATES)
    assert len(pieces) > 1, "updates of different numbers of pieces"
    for mine, theirs in zip(*(trainer.step.model.parameters() for trainer in trainers), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-6)
    assert graphs.frame_count == 1
    assert not counters["graph_break"]
    assert not counters["recompiles"]
    trainers[1].validate()
    assert graphs.frame_count == 1, "the dev set is computed without compilation"


def test_a_resumed_training_of_whole_updates_is_the_uninterrupted_one_to_the_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    monkeypatch.setattr(WholeStep, "record", staticmethod(lambda work: work))

    def train(name: str, *ends: int) -> Trainer:
        for end in ends:
            trainer = build_trainer(Job.read(write_job(tmp_path, name=name, model=DROPPING, training=PACKED)), Ranks())
            trainer.step = whole(trainer)
            for update in islice(trainer.updates(), end - trainer.position.update):
                trainer.train_step(update)
            trainer.save()
        return trainer

    once, resumed = train("once", 9), train("resumed", 5, 9)
    assert resumed.step.done == 4  # type: ignore[attr-defined]
    for mine, theirs in zip(once.step.model.parameters(), resumed.step.model.parameters(), strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize(
    ("change", "site", "why"),
    [
        ({}, {"on_cpu": True}, "on a CPU"),
        ({"batching": "buckets"}, {}, "where training.batching is not packed"),
        ({"skip_nonfinite": 1}, {}, "where training.skip_nonfinite is above 0"),
        ({"attention_coverage_cross": 0.1}, {}, "where training.attention_coverage_encoder or _cross is above 0"),
        ({}, {"ranks": 2}, "with several ranks"),
        ({}, {"micro_batch_tokens": 100}, "where REPRO_MICRO_BATCH_TOKENS is set"),
    ],
)
def test_what_one_graph_does_not_support_is_refused(change: dict[str, Any], site: dict[str, Any], why: str) -> None:
    usual: dict[str, Any] = {"on_cpu": False, "ranks": 1, "micro_batch_tokens": 0}
    check_whole_updates(PACKED, "update", **usual)
    check_whole_updates(replace(PACKED, **change), "always", **usual | site)
    sentence = f"site.compile (REPRO_COMPILE) is 'update', allowed is auto, always or never {why}"
    with pytest.raises(ValueError, match=re.escape(sentence)):
        check_whole_updates(replace(PACKED, **change), "update", **usual | site)


def test_a_training_that_is_no_whole_update_is_refused_before_its_first(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"REPRO_COMPILE\) is 'update', allowed is auto, always or never on a CPU"):
        build_trainer(Job.read(write_job(tmp_path, compile="update")), Ranks())
