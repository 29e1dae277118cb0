"""Tests of what torch.compile makes of a packed training: few graphs, no breaks, no recompilation."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from small_training import MODEL, TRAINING, write_job
from torch._dynamo.testing import CompileCounterWithBackend
from torch._dynamo.utils import counters

from model.data.batches import Batch
from model.job import Job
from model.network.dropout import Dropout
from model.training.distributed import Ranks
from model.training.setup import build_trainer

DROPPING = replace(MODEL, layers=2, p_drop_attention=0.1, p_drop_relu=0.1)
PACKED = replace(TRAINING, batching="packed", batch_tokens=60)


def test_a_packed_training_compiles_three_graphs_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # As on a GPU: tensors of a batch are parts of one buffer, and the compiler does not take the random bits of a CPU.
    monkeypatch.setattr(Batch, "to", lambda self, _: self.joined())
    monkeypatch.setattr(Dropout, "forward", lambda self, x: F.dropout(x, self.p, self.training))
    torch._dynamo.reset()
    counters.clear()
    # Without code generation: the graphs do not depend on it.
    graphs = CompileCounterWithBackend("eager")
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=graphs))
    path = write_job(tmp_path, model=DROPPING, training=PACKED, compile="always")
    trainer = build_trainer(Job.read(path), Ranks())
    updates = trainer.updates()
    pieces = set()
    for _ in range(4):
        update = next(updates)
        pieces.add(update.pieces)
        trainer.train_step(update)
    assert len(pieces) > 1, "updates of different numbers of pieces"
    assert graphs.frame_count == 3, "one of the encoder's layers, one of the decoder's, one of the loss"
    assert not counters["graph_break"]
    assert not counters["recompiles"], "padded batches may recompile, packed ones have one shape"
