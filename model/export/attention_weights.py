"""Pads the projections of an attention for libraries with one head width for queries, keys and values.

Shape suffixes: H heads     W head width of the library     D d_model
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..network.attention import Attention


def padded_projections(attention: Attention, heads: int, width: int) -> tuple[list[Tensor], list[Tensor], Tensor]:
    """Return W^Q, W^K and W^V (H * W, D), their biases (H * W), and W^O (D, H * W), each head padded to ``width``.

    It is padded with zeros, which change neither the products of queries and keys nor the output. The biases are zeros
    without ``Model.qkv_bias``.
    """
    parameters = [(name, p) for name, p in attention.named_parameters() if name[:4] != "out."]
    weights = torch.cat([p for name, p in parameters if name.endswith("weight")])
    biases: list[Tensor] = [p for name, p in parameters if name.endswith("bias")]
    bias = torch.cat(biases) if biases else torch.zeros(len(weights))
    parts = (torch.split(joined, attention.widths) for joined in (weights, bias[:, None]))
    padded = [[_pad_heads(part, heads, width) for part in each] for each in parts]
    return padded[0], [part[:, 0] for part in padded[1]], _pad_heads(attention.out.weight.T, heads, width).T


def _pad_heads(matrix: Tensor, heads: int, width: int) -> Tensor:
    """Pad the adjacent rows of each head, to (H * W, D) in total."""
    by_head = matrix.reshape(heads, -1, matrix.shape[1])
    return pad(by_head, (0, 0, 0, width - by_head.shape[1])).flatten(0, 1)
