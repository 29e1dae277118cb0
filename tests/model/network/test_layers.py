"""Tests of the layers that are the project's own: they equal torch's, or what they are defined to be."""

import pytest
import torch
from torch import nn

from model.network import linear
from model.network.attention import SequenceOffsets
from model.network.dropout import STEPS, Dropout
from model.network.linear import Linear

ONEDNN = torch.ops.mkldnn._linear_pointwise.default
LENGTHS = [3, 1, 0, 4, 0]
OFFSETS = SequenceOffsets(torch.tensor([0, 3, 4, 4, 8, 8], dtype=torch.int32), 5)


@pytest.mark.parametrize("library", [None, ONEDNN])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(7, 5, 24), (9, 24), (1, 24), (0, 24)])
def test_a_linear_layer_has_the_value_and_gradients_of_torch_s(
    monkeypatch: pytest.MonkeyPatch, library: object, bias: bool, shape: tuple[int, ...]
) -> None:
    # Use oneDNN even where this processor gains nothing.
    monkeypatch.setattr(linear, "ONEDNN_LINEAR", library)
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
    if library is None:
        assert torch.equal(mine(x), theirs(x)), "to the bit"
    with torch.inference_mode():
        torch.testing.assert_close(linear.without_gradient(mine.weight, mine.bias)(x), mine(x))


@pytest.mark.parametrize("width", [(), (2,), (2, 3)])
def test_sentences_become_rows_and_padding_is_zero(width: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    values = torch.randn(8, *width, dtype=torch.float64, requires_grad=True)
    padded = OFFSETS.to_padded(values)
    assert OFFSETS.valid_positions().sum(1).tolist() == LENGTHS
    for row, part in zip(padded, values.split(LENGTHS), strict=True):
        assert torch.equal(row[: len(part)], part)
        assert not row[len(part) :].any()
    assert torch.autograd.gradcheck(OFFSETS.to_padded, (values,))


@pytest.mark.parametrize(("dtype", "rounding"), [(torch.float32, 2**-23), (torch.bfloat16, 2**-9)])
@pytest.mark.parametrize("p", [0.1, 0.2, 0.3, 0.5])
def test_dropout_drops_its_share_and_scales_the_rest_and_the_gradient(
    p: float, dtype: torch.dtype, rounding: float
) -> None:
    torch.manual_seed(1)
    dropout = Dropout(p)
    x = torch.ones(10_000, dtype=dtype, requires_grad=True)
    kept = dropout(x)
    (scale,) = kept[kept != 0].unique().tolist()
    assert scale == pytest.approx(1 / (1 - dropout.dropped / STEPS), rel=rounding)
    assert float((kept == 0).float().mean()) == pytest.approx(p, abs=0.03)
    kept.sum().backward()
    assert torch.equal(x.grad, kept.detach())
    assert torch.equal(dropout.eval()(x), x)
