"""Tests of what bfloat16 changes in the network: the residual stream, the ReLU in its product, keys and values."""

from pathlib import Path

import numpy as np
import pytest
import torch
from small_training import SIZE, pairs, write_shards
from torch import Tensor

from model.config import Model
from model.data.batch import load_padded
from model.data.packing import BatchShape, load_packed
from model.data.shards import Shards
from model.network.attention import CrossAttention, project_memories
from model.network.transformer import Transformer
from model.training.loss import Objective

WIDE = Model(layers=2, d_model=64, d_ff=128, heads=2, d_k=32, d_v=32, p_drop=0.0)


@pytest.mark.parametrize("packed", [True, False])
def test_loss_and_gradients_are_those_of_float32(tmp_path: Path, packed: bool) -> None:
    shards, some = Shards(write_shards(tmp_path / "shards", pairs(40))), np.arange(30)
    batch = load_packed(shards, some, BatchShape(384, 384, 64, 10, 10)) if packed else load_padded(shards, some)
    found: list[tuple[float, Tensor]] = []
    passed: set[torch.dtype] = set()
    for residual in (None, torch.bfloat16):
        torch.manual_seed(0)
        objective = Objective(Transformer(WIDE, SIZE, SIZE), 0.1)
        objective.transformer.residual_dtype = residual
        for layer in (*objective.transformer.encoder, *objective.transformer.decoder):
            assert isinstance(layer, torch.nn.Module)
            layer.register_forward_hook(lambda _, __, out: passed.add(out.dtype))
        with torch.autocast("cpu", torch.bfloat16, enabled=residual is not None):
            loss, _ = objective(batch)
        (loss / batch.pieces).backward()
        assert {loss.dtype, *(p.grad.dtype for p in objective.parameters() if p.grad is not None)} == {torch.float32}
        found.append(
            (float(loss.detach()), torch.cat([p.grad.flatten() for p in objective.parameters() if p.grad is not None]))
        )
    assert passed == {torch.float32, torch.bfloat16}
    (exact, expected), (narrow, gradients) = found
    assert narrow == pytest.approx(exact, rel=1e-2)
    assert narrow != exact
    assert torch.cosine_similarity(gradients, expected, dim=0) > 0.995
    assert float(gradients.norm()) == pytest.approx(float(expected.norm()), rel=2e-2)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(12, 64), (3, 4, 64)])
def test_keys_and_values_of_all_layers_are_those_of_each(shape: tuple[int, ...], bias: bool) -> None:
    torch.manual_seed(0)
    crosses = [CrossAttention(Model(d_model=64, heads=2, d_k=16, d_v=24, qkv_bias=bias)) for _ in range(3)]
    memory, found = torch.randn(shape).bfloat16().requires_grad_(), []
    with torch.autocast("cpu", torch.bfloat16):
        joined = project_memories(crosses, memory)
        each = [cross.project_memory(memory) for cross in crosses]
    for parts in (joined, each):
        values = [value for part in parts for value in part]
        total = torch.stack([(value.float() * (1 + n)).sum() for n, value in enumerate(values)]).sum()
        gradients = torch.autograd.grad(total, [memory, *(cross.keys_values.weight for cross in crosses)])
        found.append([*values, *gradients])
    assert len(joined) == 3
    for mine, theirs in zip(*found, strict=True):
        assert mine.shape == theirs.shape
        assert float((mine.float() - theirs.float()).norm() / theirs.float().norm()) < 1e-2
