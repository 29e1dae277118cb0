"""Tests of packed sentences as padded rows: values, exact gradients, and gathers alone in both passes."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from model.config import Model
from model.network.attention import CrossAttention, PackedMask, SelfAttention, SequenceOffsets
from model.network.padding import to_padded, valid_positions
from model.training.coverage import coverage_loss, marginal

LENGTHS = [3, 1, 0, 4, 0]
OFFSETS = torch.tensor([0, 3, 4, 4, 8, 8], dtype=torch.int32)
ADDS = ("index_add", "index_put", "scatter", "put_", "cumsum", "embedding_dense_backward", "bincount")
"""Operators that add in an order which a GPU does not fix, or may."""


class Operators(TorchDispatchMode):
    """Keeps the names of the operators that run."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, function: Any, _: Any, arguments: Sequence[Any] = (), named: Any = None) -> Any:
        self.names.append(function.name())
        return function(*arguments, **(named or {}))

    def adding(self) -> list[str]:
        return [name for name in self.names if any(part in name for part in ADDS)]


@pytest.mark.parametrize("width", [(), (2,), (2, 3)])
def test_sentences_become_rows_and_padding_is_zero(width: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    values = torch.randn(8, *width, dtype=torch.float64, requires_grad=True)
    padded = to_padded(values, OFFSETS, 5)
    assert valid_positions(OFFSETS, 5).sum(1).tolist() == LENGTHS
    for row, part in zip(padded, values.split(LENGTHS), strict=True):
        assert torch.equal(row[: len(part)], part)
        assert not row[len(part) :].any()
    assert torch.autograd.gradcheck(lambda x: to_padded(x, OFFSETS, 5), (values,))


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_the_attention_of_packed_sentences_is_summed_in_one_order(device: str) -> None:
    """On a GPU the gradients repeat to the bit."""
    torch.manual_seed(0)
    config = Model(d_model=16, heads=2, d_k=8, d_v=8)
    own, cross = SelfAttention(config).to(device), CrossAttention(config).to(device)
    x_MD = torch.randn(8, 16, device=device, requires_grad=True)
    offsets = OFFSETS.to(device)
    sentences = SequenceOffsets(offsets, 5)
    mask = PackedMask(sentences, sentences)

    def gradients() -> list[Tensor]:
        losses = [own.weights(x_MD, mask), cross.weights(x_MD, cross.project_memory(x_MD), mask)]
        losses = [coverage_loss(marginal(each, sentences.valid_positions()), offsets.diff()) for each in losses]
        kept = [x_MD, own.query_keys_values.weight, cross.query.weight, cross.keys_values.weight]
        return list(torch.autograd.grad(torch.cat(losses).sum(), kept))

    with Operators() as operators:  # type: ignore[no-untyped-call]
        found = gradients()
    assert "aten::_softmax_backward_data" in operators.names, "the backward pass is recorded"
    assert not operators.adding()
    assert all(x.isfinite().all() and x.any() for x in found)
    assert all(torch.equal(x, again) for x, again in zip(found, gradients(), strict=True))
    with Operators() as operators:  # type: ignore[no-untyped-call]
        x_MD.new_zeros(5, 16).index_add(0, torch.zeros(8, dtype=torch.int64, device=device), x_MD)
        torch.autograd.grad(x_MD[torch.zeros(8, dtype=torch.int64, device=device)].sum(), x_MD)
    assert len(operators.adding()) == 2, "such operators are recorded under these names"
