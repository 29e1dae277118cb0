"""Tests of the chunked loss: value and gradients equal those of torch's cross-entropy."""

from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

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
from model.training import softmax_gradient
from model.training.loss import Objective, smoothed_loss


@settings(max_examples=30)
@given(
    count=st.integers(0, 9),
    size=st.integers(2, 12),
    smoothing=st.sampled_from([0.0, 0.1, 0.5]),
    chunk=st.integers(1, 60),
    cached=st.integers(1, 60),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    seed=st.integers(0, 100),
)
def test_value_and_gradients_are_those_of_cross_entropy(
    count: int, size: int, smoothing: float, chunk: int, cached: int, dtype: torch.dtype, seed: int
) -> None:
    torch.manual_seed(seed)
    tolerance = {"atol": 1e-4, "rtol": 1e-4} if dtype == torch.float32 else {"atol": 1e-12, "rtol": 1e-12}
    hidden, matrix = torch.randn(count, 5, dtype=dtype), torch.randn(size, 5, dtype=dtype, requires_grad=True)
    labels = torch.randint(0, size, (count,))
    hidden = (hidden * (labels != PAD)[:, None]).requires_grad_()
    with patch.dict(objective.CHUNK_LOGITS, cpu=chunk), patch.object(softmax_gradient, "CACHED_LOGITS", cached):
        loss, nll = smoothed_loss(hidden, matrix, labels, smoothing)
    mine = torch.autograd.grad(loss * 0.7, [hidden, matrix])
    logits = hidden @ matrix.T
    plain = F.cross_entropy(logits, labels, label_smoothing=smoothing, reduction="sum", ignore_index=PAD)
    theirs = torch.autograd.grad(plain * 0.7, [hidden, matrix])
    torch.testing.assert_close(loss, plain, **tolerance)
    torch.testing.assert_close(nll, F.cross_entropy(logits, labels, reduction="sum", ignore_index=PAD), **tolerance)
    # The caller drops the gradient at padding: its hidden states are constant zeros.
    mine = [mine[0] * (labels != PAD)[:, None], mine[1]]
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a, b, **tolerance)


def test_a_label_whose_probability_vanishes_has_its_loss() -> None:
    hidden, matrix = torch.ones(2, 1), torch.tensor([[0.0], [300.0], [-5.0], [-300.0]])
    labels = torch.tensor([3, 1])
    loss, nll = smoothed_loss(hidden, matrix, labels, 0.0)
    assert loss.item() == nll.item() == 600.0


def test_under_autocast_the_loss_is_summed_in_float32() -> None:
    """Hidden states, matrix and logits are exact in bfloat16 here; sums and means over them are not."""
    torch.manual_seed(0)
    hidden, matrix = torch.randint(-1, 3, (500, 6)).float(), torch.randint(-3, 4, (37, 6)) / 8
    labels = torch.randint(PAD + 1, 37, (500,))
    with torch.autocast("cpu", torch.bfloat16):
        loss, nll = smoothed_loss(hidden, matrix, labels, 0.4)
    logits = hidden.double() @ matrix.double().T
    assert torch.equal(logits, logits.bfloat16().double())
    assert loss.item() == pytest.approx(
        F.cross_entropy(logits, labels, label_smoothing=0.4, reduction="sum").item(), rel=1e-6
    )
    assert nll.item() == pytest.approx(F.cross_entropy(logits, labels, reduction="sum").item(), rel=1e-6)


def test_a_nan_input_gives_a_nan_loss() -> None:
    loss, _ = smoothed_loss(torch.tensor([[float("nan")]]), torch.ones(3, 1), torch.tensor([1]), 0.1)
    assert not loss.isfinite()


@pytest.mark.parametrize("is_packed", [False, True])
def test_a_bias_of_the_projection_is_part_of_the_logits(tmp_path: Path, is_packed: bool) -> None:
    shards = Shards(write_shards(tmp_path / "shards", pairs(6)))
    some = np.arange(6)
    batch = load_packed(shards, some, BatchShape(80, 80, 64, 10, 10)) if is_packed else load_padded(shards, some)
    torch.manual_seed(0)
    model = Transformer(replace(MODEL, p_drop=0.0, output_bias=True), SIZE, SIZE).double()
    bias = model.output_bias_N
    assert bias is not None
    torch.nn.init.normal_(bias)
    loss, _ = Objective(model, 0.1)(batch)
    hidden = model(batch.source, batch.target, batch.packing)
    logits = model.logits(hidden if is_packed else hidden.flatten(0, 1)[batch.label_indices])
    plain = F.cross_entropy(logits, batch.labels, label_smoothing=0.1, reduction="sum", ignore_index=PAD)
    torch.testing.assert_close(loss, plain)
    parameters = list(model.parameters())
    for mine, theirs in zip(torch.autograd.grad(loss, parameters), torch.autograd.grad(plain, parameters), strict=True):
        torch.testing.assert_close(mine, theirs)
