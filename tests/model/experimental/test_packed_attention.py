"""Tests of the operator for packed attention: values, gradients and dropout by counter."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from small_training import MODEL, TRAINING, write_job
from torch import Tensor

from model.experimental.packed_attention import attend, packed_attention
from model.experimental.philox import DRAWS, dropped_draws, kept, philox
from model.job import Job
from model.network.widths import Widths
from model.train import trainer_for
from model.training.distributed import Ranks

SIZES = Widths(heads=2, d_k=4, d_v=3)
QUERIES, KEYS = [3, 1, 5, 0], [2, 4, 1, 0]
KINDS = ("self", "causal", "cross")


def arguments(kind: str, p_drop: float, dtype: torch.dtype = torch.float64) -> list[Any]:
    """The operator's arguments for random sentences, the last one empty."""
    torch.manual_seed(0)
    keys = KEYS if kind == "cross" else QUERIES
    own, other = SIZES.heads * SIZES.d_k, SIZES.heads * (SIZES.d_k + SIZES.d_v)
    x = torch.randn(sum(QUERIES), own if kind == "cross" else own + other, dtype=dtype, requires_grad=True)
    memory = torch.randn(sum(keys), other, dtype=dtype, requires_grad=True) if kind == "cross" else None
    offsets = [torch.tensor([0, *lengths]).cumsum(0).int() for lengths in (QUERIES, keys)]
    seed = torch.tensor(0x123456789ABCDEF) if p_drop else None
    return [x, memory, *offsets, max(QUERIES), max(keys), list(SIZES), kind == "causal", p_drop, seed]


def one_by_one(x: Tensor, memory: Tensor | None, at_q: Tensor, at_k: Tensor, *others: Any) -> Tensor:
    """Attention sentence by sentence and head by head, as it is defined."""
    (*_, causal, p_drop, seed), out = others, x.new_zeros(len(x), SIZES.heads * SIZES.d_v)
    q, k, v = (part.unflatten(-1, (SIZES.heads, -1)) for part in SIZES.split(x, memory))
    for a, b, c, d in zip(at_q[:-1], at_q[1:], at_k[:-1], at_k[1:], strict=True):
        for head in range(SIZES.heads if a < b else 0):
            scores = q[a:b, head] @ k[c:d, head].T / SIZES.d_k**0.5
            if causal:
                scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -torch.inf)
            weights = scores.softmax(-1)
            if p_drop:
                keep = kept(seed, torch.arange(int(a), int(b)), SIZES.heads, int(d - c), p_drop)[head]
                weights = weights * keep / (1 - dropped_draws(p_drop) / DRAWS)
            out[a:b, head * SIZES.d_v : (head + 1) * SIZES.d_v] = weights @ v[c:d, head]
    return out


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("p_drop", [0.0, 0.4])
def test_values_and_gradients_are_those_of_the_definition(kind: str, p_drop: float) -> None:
    inputs = arguments(kind, p_drop)
    found = packed_attention(*inputs)[0]
    torch.testing.assert_close(found, one_by_one(*inputs))
    tensors = [x for x in inputs[:2] if x is not None]
    grad = torch.randn_like(found)
    for mine, theirs in zip(
        torch.autograd.grad(found, tensors, grad),
        torch.autograd.grad(one_by_one(*inputs), tensors, grad),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("kind", KINDS)
def test_the_operator_is_registered_as_torch_expects(kind: str) -> None:
    torch.library.opcheck(packed_attention, arguments(kind, 0.4, torch.float32))


def test_gradients_share_one_buffer() -> None:
    x, memory, *others = arguments("cross", 0.4)
    grads = torch.autograd.grad(packed_attention(x, memory, *others)[0].sum(), (x, memory))
    assert grads[0].untyped_storage().data_ptr() == grads[1].untyped_storage().data_ptr()


def test_philox_gives_the_published_numbers() -> None:
    """The first vectors of kat_vectors in Random123, with the fourth word of the counter 0."""
    zero = torch.tensor(0)
    assert [f"{word:08x}" for word in philox(zero, (zero, zero, zero)).tolist()] == [
        "6627e8d5", "e169c58d", "bc57ac4c", "9b00dbd8",
    ]  # fmt: skip


def test_dropout_keeps_the_share_it_promises_and_differs_by_seed_query_head_and_key() -> None:
    queries = torch.arange(1_000)
    one, other = (kept(torch.tensor(seed), queries, 4, 50, 0.25) for seed in (1, 2))
    assert one.shape == (4, 1_000, 50)
    for dimension in range(3):
        shares = one.double().mean([i for i in range(3) if i != dimension])
        assert float(shares.mean()) == pytest.approx(0.75, abs=0.005)
        assert float(shares.min()) > 0.55, "a query, head or key that is dropped more often than others"
    for another in (other, one.roll(1, 0), one.roll(1, 1), one.roll(1, 2)):
        assert float((one == another).double().mean()) == pytest.approx(0.625, abs=0.01)


def test_a_training_attends_by_the_operator_where_its_site_says_so(tmp_path: Path) -> None:
    training = replace(TRAINING, batching="packed")
    found = []
    for name in ("torch", "own"):
        path = write_job(tmp_path, name=name, model=MODEL, training=training, packed_attention=name)
        trainer = trainer_for(Job.read(path), Ranks())
        assert (trainer.step.model.packed_attention is attend) == (name == "own")
        trainer.train_step(next(trainer.updates()))
        found.append([p.grad for p in trainer.step.model.parameters()])
    for theirs, mine in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-6, rtol=1e-4)
