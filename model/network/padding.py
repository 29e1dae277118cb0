"""Packed sentences as padded rows. Forward and backward passes only gather.

Plain indexing would add the gradients of all padding to one row: slow, and where additions are atomic their order, and
with it the rounding, differs from run to run.

Shape suffixes: M positions of N sentences end to end, T of the longest.
"""

from typing import Any

import torch
from torch import Tensor


def valid_positions(offsets: Tensor, longest: int) -> Tensor:
    """Which positions of padded rows hold a piece: (N, T)."""
    return torch.arange(longest, device=offsets.device) < offsets.diff()[:, None]


def padded_indices(offsets: Tensor, longest: int) -> tuple[Tensor, Tensor]:
    """Positions (B, longest) of the pieces of each sentence that is not empty, and which of them are valid."""
    begins_N = offsets[:-1].long()
    ends_N = offsets[1:].long()
    filled_N = ends_N > begins_N
    index_BT = begins_N[filled_N, None] + torch.arange(longest, device=offsets.device)
    valid_BT = index_BT < ends_N[filled_N, None]
    return index_BT.where(valid_BT, 0), valid_BT


def to_padded(values: Tensor, offsets: Tensor, longest: int) -> Tensor:
    """Values of packed sentences (M, …) as padded rows (N, T, …), zero in padding; empty sentences have a row too.

    Sentence n has the positions ``offsets[n]`` to ``offsets[n + 1]``, at most ``longest``; the last ends at M.
    """
    padded: Tensor = _ToPadded.apply(values, offsets, longest)  # type: ignore[no-untyped-call]
    return padded


class _ToPadded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, offsets: Tensor, longest: int) -> Tensor:
        ctx.save_for_backward(offsets)
        ctx.positions = len(values)
        places_NT = offsets[:-1, None] + torch.arange(longest, device=offsets.device)
        padding_NT = ~valid_positions(offsets, longest)
        padding = padding_NT.view(*padding_NT.shape, *[1] * (values.dim() - 1))
        return values[places_NT.clamp_max(len(values) - 1)].masked_fill(padding, 0)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (offsets,) = ctx.saved_tensors
        positions_M = torch.arange(ctx.positions, device=offsets.device)
        sentences_M = torch.searchsorted(offsets[1:], positions_M, right=True)
        return grad[sentences_M, positions_M - offsets[sentences_M]], None, None
