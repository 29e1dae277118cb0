"""Tests of R-Drop: value and gradients by torch's divergence, its pull on the passes, and what it leaves alone."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from small_training import MODEL, SIZE, pairs, write_shards

from model.config.special_pieces import PAD
from model.data.batch import load_padded
from model.data.packing import BatchShape, load_packed
from model.data.shards import Shards
from model.network.transformer import Transformer
from model.training import loss as objective
from model.training.coverage import CoverageLoss
from model.training.loss import Objective, smoothed_loss
from model.training.r_drop import interleave


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Shards:
    return Shards(write_shards(tmp_path_factory.mktemp("r-drop") / "shards", pairs(40)))


def double_model(p_drop: float) -> Transformer:
    torch.manual_seed(0)
    return Transformer(replace(MODEL, p_drop=p_drop), SIZE, SIZE).double()


@settings(max_examples=30)
@given(
    count=st.integers(0, 9),
    size=st.integers(PAD + 2, 12),
    weight=st.sampled_from([0.5, 5.0]),
    chunk=st.integers(1, 300),
    seed=st.integers(0, 100),
)
def test_value_and_gradients_are_those_of_torch(count: int, size: int, weight: float, chunk: int, seed: int) -> None:
    torch.manual_seed(seed)
    labels = torch.randint(0, size, (count,))
    real = (labels != PAD)[:, None]
    first, second = ((torch.randn(count, 5).double() * real).requires_grad_() for _ in range(2))
    matrix = torch.randn(size, 5).double().requires_grad_()
    before = objective.CHUNK_LOGITS["cpu"]
    objective.CHUNK_LOGITS["cpu"] = chunk
    try:
        rows = interleave(first, second), matrix, labels.repeat_interleave(2)
        loss, nll = smoothed_loss(*rows, 0.1, divergence_weight=weight / 2)
    finally:
        objective.CHUNK_LOGITS["cpu"] = before
    logits = [first @ matrix.T, second @ matrix.T]
    kwargs = {"reduction": "sum", "ignore_index": PAD}
    smoothed = [F.cross_entropy(x, labels, label_smoothing=0.1, **kwargs) for x in logits]  # type: ignore[arg-type]
    p, q = (x.log_softmax(-1) for x in logits)
    divergence = sum(F.kl_div(a, b, reduction="sum", log_target=True) for a, b in ((p, q), (q, p)))
    plain = smoothed[0] + smoothed[1] + weight / 2 * divergence
    torch.testing.assert_close(loss, plain)
    torch.testing.assert_close(nll, sum(F.cross_entropy(x, labels, **kwargs) for x in logits))  # type: ignore[arg-type]
    mine, theirs = (torch.autograd.grad(x * 0.7, [first, second, matrix]) for x in (loss, plain))
    # The caller drops the gradient at padding: its hidden states are constant zeros.
    for a, b, kept in zip(mine, theirs, (real, real, torch.tensor(True)), strict=True):
        torch.testing.assert_close(a * kept, b * kept)


def test_equal_passes_have_the_plain_losses_in_any_batch_and_validation_has_one_pass(shards: Shards) -> None:
    rows = np.array([3, 17, 5, 30, 11])
    shape = BatchShape(source=64, target=64, sentences=64, longest_source=10, longest_target=10)
    model = double_model(p_drop=0.0)
    for batch in (load_packed(shards, rows, shape), load_padded(shards, rows)):
        for coverage in (None, CoverageLoss(model, 3.0, 2.0)):
            found = []
            for r_drop in (0.0, 5.0):
                loss, nll = Objective(model, 0.1, coverage, r_drop=r_drop).train()(batch)
                found.append([loss, nll, *torch.autograd.grad(loss, [model.target_embedding])])
            for once, twice in zip(*found, strict=True):
                torch.testing.assert_close(twice, once)
    dropping, batch = double_model(p_drop=0.5), load_padded(shards, rows)
    assert Objective(dropping, 0.1, r_drop=5.0).eval()(batch)[0] == Objective(dropping, 0.1).eval()(batch)[0]
