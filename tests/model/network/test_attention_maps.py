"""Tests of attention maps: rows sum to 1, are causal, and agree with the model's outputs and torch's layers."""

import pytest
import torch

from model.config import Model
from model.network.attention_maps import attention_maps
from model.network.transformer import Transformer
from model.network.weights import build

SHAPE = Model(layers=2, d_model=16, d_ff=32, heads=2, d_k=8, d_v=8, max_positions=32)
SOURCE = torch.tensor([[5, 6, 7, 8, 2]])
TARGET = torch.tensor([[1, 9, 10, 11]])


@pytest.fixture
def model() -> Transformer:
    torch.manual_seed(1)
    return build(SHAPE, 20, 20).eval()


def test_rows_sum_to_one_and_are_causal(model: Transformer) -> None:
    maps = attention_maps(model, SOURCE, TARGET)
    assert maps.encoder.shape == (2, 1, 2, 5, 5)
    assert maps.decoder.shape == (2, 1, 2, 4, 4)
    assert maps.cross.shape == (2, 1, 2, 4, 5)
    for weights in (maps.encoder, maps.decoder, maps.cross):
        assert torch.allclose(weights.sum(-1), torch.ones(()), atol=1e-6)
    assert not maps.decoder.triu(1).any()


def test_weighted_values_equal_the_output_of_the_layer(model: Transformer) -> None:
    seen: list[torch.Tensor] = []
    layer = model.encoder[0].attention
    layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    layer.register_forward_hook(lambda _, inputs, output: seen.append(output))
    with torch.no_grad():
        weights = attention_maps(model, SOURCE, TARGET).encoder[0]
        given, expected = seen[:2]
        values = layer.split_heads(layer.query_keys_values(given).split(layer.widths, dim=-1)[2])
        found = layer.out((weights @ values).transpose(1, 2).flatten(2))
    assert torch.allclose(found, expected, atol=1e-5)
