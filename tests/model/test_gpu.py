"""Tests of numerics and training on a GPU; run with ``pytest -m gpu``."""

import json
import subprocess
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_training import SIZE, TRAINING, pairs, rows, write_job, write_shards
from torch import Tensor

from model.config import Model
from model.data.batch import Batch, load_padded
from model.data.packing import BatchShape, load_packed
from model.data.shards import Shards
from model.experimental import packed_attention
from model.experimental.whole_step import WARM_UPDATES
from model.job import Job, StopSignal
from model.network.attention import PackedMask, SequenceOffsets, Widths
from model.network.transformer import Transformer
from model.train import trainer_for
from model.training.distributed import Ranks
from model.training.loss import Objective

pytestmark = pytest.mark.gpu

WIDE = Model(layers=2, d_model=64, d_ff=128, heads=2, d_k=32, d_v=32, p_drop=0.0)
PACKED = replace(TRAINING, batching="packed", precision="bf16")


def loss_and_gradients(batch: Batch, device: str, *, bf16: bool, residual: bool = False) -> tuple[float, Tensor]:
    """The loss per piece, and all gradients in one tensor."""
    torch.manual_seed(0)
    objective = Objective(Transformer(WIDE, SIZE, SIZE), 0.1).to(device)
    objective.transformer.residual_dtype = torch.bfloat16 if residual else None
    with torch.autocast(device, torch.bfloat16, enabled=bf16):
        loss, _ = objective(batch.to(torch.device(device)))
    (loss / batch.pieces).backward()
    return float(loss) / batch.pieces, torch.cat([p.grad.flatten().cpu() for p in objective.parameters()])


def train(path: Path) -> dict[str, Any]:
    """Train in a separate process, since CUDA does not survive a fork; returns ``exit.json``."""
    root = Path(__file__).resolve().parents[2]
    subprocess.run([sys.executable, "-m", "model.train", str(path)], cwd=root, check=False, timeout=280)
    answer: dict[str, Any] = json.loads((path.parent / "exit.json").read_text())
    return answer


# Packed batches on a GPU are allowed in bfloat16 only.
@pytest.mark.parametrize(
    ("packed", "bf16", "residual"),
    [(False, False, False), (False, True, False), (True, True, False), (False, True, True), (True, True, True)],
)
def test_a_gpu_computes_the_same_as_a_cpu(tmp_path: Path, packed: bool, bf16: bool, residual: bool) -> None:
    shards, some = Shards(write_shards(tmp_path / "shards", pairs(40))), np.arange(30)
    batch = load_packed(shards, some, BatchShape(384, 384, 64, 10, 10)) if packed else load_padded(shards, some)
    exact, expected = loss_and_gradients(load_padded(shards, some), "cpu", bf16=False)
    loss, found = loss_and_gradients(batch, "cuda", bf16=bf16, residual=residual)
    assert loss == pytest.approx(exact, rel=2e-2 if bf16 else 1e-5)
    assert torch.cosine_similarity(found, expected, dim=0) > (0.99 if bf16 else 0.99999)


@pytest.mark.parametrize("causal", [False, True])
def test_the_experimental_operator_is_torchs_attention_in_float64_and_the_same_each_time(causal: bool) -> None:
    torch.manual_seed(0)
    lengths = [700, 1, 300]
    at = torch.tensor([0, *lengths]).cumsum(0).int()
    x = torch.randn(sum(lengths), 192, dtype=torch.bfloat16)
    grad = torch.randn(sum(lengths), 64, dtype=torch.bfloat16)

    def computed(device: str, dtype: torch.dtype) -> list[Tensor]:
        offsets = SequenceOffsets(at.to(device), max(lengths))
        inputs = x.to(device, dtype).requires_grad_()
        attend = packed_attention.attend if device == "cuda" else None
        mask = PackedMask(offsets, offsets, causal, attend)
        out = mask.attend(inputs, None, Widths(2, 32, 32), 0.0)
        return [out.detach(), *torch.autograd.grad(out, inputs, grad.to(device, dtype))]

    found = computed("cuda", torch.bfloat16)
    for mine, exact in zip(found, computed("cpu", torch.float64), strict=True):
        assert float((mine.cpu().double() - exact).norm() / exact.norm()) < 2e-2
    for _ in range(5):
        assert all(map(torch.equal, computed("cuda", torch.bfloat16), found))


@pytest.mark.parametrize(("compiled", "coverage"), [("auto", 0.0), ("auto", 0.5), ("update", 0.0)])
def test_no_update_waits_for_the_gpu(tmp_path: Path, compiled: str, coverage: float) -> None:
    # A checkpoint and a validation wait.
    due = {"checkpoint_every": 100, "dev_every": 100}
    training = replace(PACKED, attention_coverage_encoder=coverage, attention_coverage_cross=coverage, **due)
    path = write_job(tmp_path, model=WIDE, training=training, device="cuda", log_seconds=1e9, compile=compiled)
    trainer, stop = trainer_for(Job.read(path), Ranks()), StopSignal()
    updates = trainer.updates()
    for _ in range(WARM_UPDATES + 1):  # the first updates may wait
        trainer.update(next(updates), stop)
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(2):
            trainer.update(next(updates), stop)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_replayed_updates_are_the_plain_ones_and_draw_new_masks(tmp_path: Path) -> None:
    def losses(name: str, p_drop: float) -> list[float]:
        training = replace(PACKED, updates=20, peak=1e-30)  # the weights stay
        settings = {"model": replace(WIDE, p_drop=p_drop), "training": training, "device": "cuda"}
        path = write_job(tmp_path, name=f"{name}-{p_drop}", compile=name, log_seconds=1e9, **settings)
        trainer = trainer_for(Job.read(path), Ranks())
        update = next(trainer.updates())
        return [float(trainer.train_step(update).sums[0]) for _ in range(8)]

    assert losses("update", 0.0) == pytest.approx(losses("never", 0.0), rel=1e-2)
    dropped = losses("update", 0.3)
    assert len(set(dropped)) == len(dropped), "each replay has a seed of its own"
    assert losses("update", 0.3) == dropped


# Last: a visit to a GPU has little time, and these compile for seven trainings.
@pytest.mark.parametrize(
    ("compiled", "batching", "residual"),
    [
        *product(("never", "always"), ("buckets", "packed"), ("fp32",)),
        *product(("never", "always", "update"), ("packed",), ("bf16",)),
    ],
)
def test_a_training_on_a_gpu_learns(tmp_path: Path, compiled: str, batching: Any, residual: Any) -> None:
    training = replace(
        PACKED, batching=batching, residual=residual, updates=150, dev_every=150, checkpoint_every=50, peak=1e-2
    )
    job = write_job(tmp_path, model=replace(WIDE, norm="pre"), training=training, device="cuda", compile=compiled)
    answer = train(job)
    assert answer["reason"] == "done", answer["message"]
    nll = [row["nll"] for row in rows(job) if "nll" in row]
    assert np.mean(nll[-10:]) < 0.8 * np.mean(nll[:10])
