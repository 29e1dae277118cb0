"""Tests of the dense layer: it equals torch's with either library."""

import pytest
import torch
from torch import nn

from model.network import linear
from model.network.linear import Linear


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(7, 5, 24), (9, 24), (0, 24)])
def test_value_and_gradients_are_torch_s(monkeypatch: pytest.MonkeyPatch, bias: bool, shape: tuple[int, ...]) -> None:
    # Use oneDNN even where this processor gains nothing.
    monkeypatch.setattr(linear, "ONEDNN_LINEAR", torch.ops.mkldnn._linear_pointwise.default)
    monkeypatch.setattr(linear, "MIN_WEIGHTS", 0)
    torch.manual_seed(0)
    mine, theirs = Linear(24, 40, bias=bias), nn.Linear(24, 40, bias=bias)
    theirs.load_state_dict(mine.state_dict())
    x, slope = torch.randn(shape), torch.randn(*shape[:-1], 40)
    found = []
    for layer in (mine, theirs):
        given = x.clone().requires_grad_()
        out = layer(given)
        out.backward(slope)
        found.append([out.detach(), given.grad, *(p.grad for p in layer.parameters())])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)


def test_without_the_library_it_is_torch_s_to_the_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    layer, x = Linear(256, 300), torch.randn(3, 256)
    monkeypatch.setattr(linear, "ONEDNN_LINEAR", None)
    assert torch.equal(layer(x), nn.functional.linear(x, layer.weight, layer.bias))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rows", [1, 2, 4, 33])
def test_without_a_gradient_the_product_is_the_same(monkeypatch: pytest.MonkeyPatch, bias: bool, rows: int) -> None:
    torch.manual_seed(0)
    layer, x = Linear(64, 200, bias=bias), torch.randn(rows, 64)
    for library in (None, torch.ops.mkldnn._linear_pointwise.default):
        monkeypatch.setattr(linear, "ONEDNN_LINEAR", library)
        monkeypatch.setattr(linear, "MIN_WEIGHTS", 0)
        with torch.inference_mode():
            torch.testing.assert_close(linear.without_gradient(layer.weight, layer.bias)(x), layer(x))
