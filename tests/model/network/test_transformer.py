"""Tests of the Transformer: causality, padding, caching, parameter counts and initialisation."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from model.config import Model
from model.config import count_parameters as closed_formula
from model.config.paper_models import BASE, TABLE_3
from model.config.special_pieces import BOS, EOS, PAD
from model.network.transformer import Transformer, sinusoid

SMALL = Model(layers=2, d_model=16, d_ff=24, heads=2, d_k=6, d_v=10, p_drop=0.3, max_positions=16)
SHAPES = [
    replace(SMALL, norm=norm, positions=positions, tied=tied)
    for norm, positions, tied in (("post", "sinusoid", True), ("pre", "learned", False), ("pre", "sinusoid", True))
]
SIZE = 20


def small(config: Model = SMALL) -> Transformer:
    torch.manual_seed(0)
    return Transformer(config, SIZE, SIZE).eval()


def pieces(*rows: list[int]) -> Tensor:
    longest = max(map(len, rows))
    return torch.tensor([row + [PAD] * (longest - len(row)) for row in rows])


def parameters(config: Model, source_size: int, target_size: int) -> int:
    with torch.device("meta"):
        return sum(p.numel() for p in Transformer(config, source_size, target_size).parameters())


UNTIED = replace(SMALL, norm="pre", tied=False, positions="learned_sinusoid", qkv_bias=True)


@pytest.mark.parametrize("config", [*(model for model, _ in TABLE_3.values()), UNTIED])
def test_a_model_has_the_parameters_of_the_closed_formula(config: Model) -> None:
    target_size = 37_000 if config.tied else 20_000
    assert parameters(config, 37_000, target_size) == closed_formula(config, 37_000, target_size)


@pytest.mark.parametrize("config", SHAPES)
def test_the_future_never_leaks(config: Model) -> None:
    model = small(config)
    source, target = pieces([5, 6, 7, EOS]), pieces([BOS, 8, 9, 10, 11])
    memory, mask = model.encode(source)
    embedded: list[Tensor] = []
    model.target_positions.register_forward_hook(lambda _, __, out: embedded.append(out) or out.retain_grad())
    hidden = model.decode(target, memory, mask)
    for t in range(target.shape[1]):
        (gradient,) = torch.autograd.grad(hidden[0, t].pow(2).sum(), embedded[0], retain_graph=True)
        seen = gradient[0].abs().sum(-1) > 0
        assert seen.tolist() == [True] * (t + 1) + [False] * (target.shape[1] - t - 1)


@pytest.mark.parametrize("config", SHAPES)
@settings(max_examples=20)
@given(
    first=st.lists(st.integers(3, SIZE - 1), min_size=1, max_size=6),
    second=st.lists(st.integers(3, SIZE - 1), min_size=1, max_size=6),
)
def test_padding_and_other_rows_never_matter(config: Model, first: list[int], second: list[int]) -> None:
    model = small(config)
    together = model(pieces([*first, EOS], [*second, EOS]), pieces([BOS, *second], [BOS, *first]))
    alone = model(pieces([*first, EOS]), pieces([BOS, *second]))
    torch.testing.assert_close(together[0, : len(second) + 1], alone[0], atol=1e-5, rtol=1e-4)


def test_sinusoids_are_the_paper_s() -> None:
    table = sinusoid(50, 8)
    for position, i in ((0, 0), (3, 1), (49, 3)):
        angle = position / 10_000 ** (2 * i / 8)
        assert table[position, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-5)
        assert table[position, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-5)


def test_sinusoids_are_unbounded_and_learned_positions_bounded() -> None:
    long = pieces([5] * 40)
    short, wide = small(), small(replace(SMALL, max_positions=64))
    torch.testing.assert_close(short(long, long), wide(long, long))
    with pytest.raises(ValueError, match=r"position is 40, allowed is up to model.max_positions, 16"):
        small(replace(SMALL, positions="learned"))(long, long)


def test_tying_needs_one_vocabulary() -> None:
    with pytest.raises(ValueError, match="target_size is 30"):
        Transformer(SMALL, 20, 30)
    model = Transformer(replace(SMALL, tied=False), 20, 30)
    hidden = model(pieces([19, EOS]), pieces([BOS, 29]))
    assert model.logits(hidden).shape == (1, 2, 30)


def test_embeddings_have_unit_variance_and_fused_matrices_the_bound_of_separate_ones() -> None:
    torch.manual_seed(1)
    model = Transformer(replace(BASE, layers=1), 1_000, 1_000)
    scaled = model.target_embedding * math.sqrt(BASE.d_model)
    assert scaled.var().item() == pytest.approx(1, rel=0.02)
    bound = math.sqrt(6 / (512 + 512))
    for part in model.encoder[0].attention.query_keys_values.weight.split(512):
        assert part.abs().max().item() == pytest.approx(bound, rel=0.01)


def test_positions_start_from_sinusoids_and_are_trained() -> None:
    config = replace(SMALL, positions="learned_sinusoid", p_drop=0.0)
    torch.manual_seed(1)
    trained = small(config)
    torch.manual_seed(1)
    fixed = small(replace(config, positions="sinusoid"))
    assert torch.equal(trained.source_positions.table, fixed.source_positions.table)
    source, target = pieces([5, 6, EOS]), pieces([BOS, 7])
    outputs = [model.logits(model(source, target)) for model in (trained, fixed)]
    assert torch.equal(*outputs)
    outputs[0].square().sum().backward()
    for positions, used in ((trained.source_positions, 3), (trained.target_positions, 2)):
        assert isinstance(positions.table, torch.nn.Parameter)
        assert positions.table.grad is not None
        assert (positions.table.grad.abs().sum(1) > 0).nonzero().flatten().tolist() == list(range(used))
    assert {"source_positions.table", "target_positions.table"} <= trained.state_dict().keys()
