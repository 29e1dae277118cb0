"""Pads the projections of an attention for libraries with one head width for queries, keys and values.

Shape suffixes: H heads     W head width of the library     D d_model
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..network.attention import Attention


def padded_projections(attention: Attention, heads: int, width: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return W^Q, W^K and W^V (H * W, D) and W^O (D, H * W), each head padded with zeros to ``width``.

    The zeros change neither the products of queries and keys nor the output.
    """
    q, k, v = torch.split(_joined(attention, "weight"), attention.widths)
    out = _pad_heads(attention.out.weight.T, heads, width).T
    return _pad_heads(q, heads, width), _pad_heads(k, heads, width), _pad_heads(v, heads, width), out


def padded_biases(attention: Attention, heads: int, width: int, biased: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return the biases (H * W) of W^Q, W^K and W^V, also padded; zeros unless ``biased`` (``Model.qkv_bias``)."""
    biases = _joined(attention, "bias") if biased else torch.zeros(sum(attention.widths))
    q, k, v = (_pad_heads(part[:, None], heads, width)[:, 0] for part in torch.split(biases, attention.widths))
    return q, k, v


def _joined(attention: Attention, kind: str) -> Tensor:
    """Concatenate the weights, or the biases, of W^Q, W^K and W^V."""
    return torch.cat([p for name, p in attention.named_parameters() if name.endswith(kind) and name[:4] != "out."])


def _pad_heads(matrix: Tensor, heads: int, width: int) -> Tensor:
    """Pad the adjacent rows of each head, to (H * W, D) in total."""
    by_head = matrix.reshape(heads, -1, matrix.shape[1])
    return pad(by_head, (0, 0, 0, width - by_head.shape[1])).flatten(0, 1)
