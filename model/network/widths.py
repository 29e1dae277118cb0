"""The widths of the heads of an attention, and how queries, keys and values lie side by side in one tensor.

Shape suffixes are those of ``model.network.packed_attention``.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Widths(NamedTuple):
    """Number of heads, and the width of a query or key and of a value in each."""

    heads: int
    d_k: int
    d_v: int

    def split(self, x_MX: Tensor, memory_SY: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Queries (M, H * K), keys (S, H * K) and values (S, H * V) as views."""
        keys = self.heads * self.d_k
        values = self.heads * self.d_v
        if memory_SY is None:
            q, k, v = torch.split(x_MX, [keys, keys, values], dim=-1)
            return q, k, v
        k, v = torch.split(memory_SY, [keys, values], dim=-1)
        return x_MX, k, v
