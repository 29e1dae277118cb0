"""The projections of an attention in the layout of libraries whose queries, keys and values share one head width.

Shape suffixes: H heads     W head width of the library     D d_model
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..network.attention import Attention


def padded_projections(attention: Attention, heads: int, width: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return W^Q, W^K and W^V (H * W, D) and W^O (D, H * W), each head padded with zeros to ``width``.

    The zeros change no product of queries and keys and no output.
    """
    inputs: list[Tensor] = [weight for name, weight in attention.named_parameters() if not name.startswith("out.")]
    q, k, v = torch.split(torch.cat(inputs), attention.widths)
    out = _pad_heads(attention.out.weight.T, heads, width).T
    return _pad_heads(q, heads, width), _pad_heads(k, heads, width), _pad_heads(v, heads, width), out


def _pad_heads(matrix: Tensor, heads: int, width: int) -> Tensor:
    """Pad the rows of each head, which lie side by side, to (H * W, D)."""
    by_head = matrix.reshape(heads, -1, matrix.shape[1])
    return pad(by_head, (0, 0, 0, width - by_head.shape[1])).flatten(0, 1)
