"""Attention over packed sentences as one operator with dropout, ``model::packed_attention``, with Triton kernels.

The dropped weights are a function of seed, query, head and key, so a backward pass computes them again.

Self-attention takes one tensor with queries, keys and values side by side. Cross-attention takes two tensors: queries,
and keys and values. All gradients are views of one buffer, so joining them costs no copy.

Shape suffixes are the same as in ``model.network.attention``; X and Y are the widths of the joined tensors. Ranges are
int32: (M, 2) are begin and end of the keys of each query's sentence, (S, 2) of the queries of each key's sentence.
"""

from typing import Any

import torch
from torch import Tensor

from ..network.attention import PackedMask, SequenceOffsets, Widths

OPERATORS = __name__.partition(".")[0]
"""The namespace of the operators. torch allows one operator per name in a process, but a registered version contains
this package under another name."""


def attend(mask: PackedMask, x_MX: Tensor, memory_SY: Tensor | None, widths: Widths, p_drop: float) -> Tensor:
    """Compute ``PackedMask.attend`` with this operator."""
    keys_M2 = ranges(mask.queries, len(x_MX), mask.keys)
    queries_S2 = keys_M2 if memory_SY is None else ranges(mask.keys, len(memory_SY), mask.queries)
    seed = torch.randint(1 << 62, (), device=x_MX.device) if p_drop else None
    return packed_attention(x_MX, memory_SY, keys_M2, queries_S2, list(widths), mask.causal, p_drop, seed)[0]


def ranges(side: SequenceOffsets, pieces: int, other: SequenceOffsets) -> Tensor:
    """Return begin and end, on the other side, of the sentence of each piece of this side: (pieces, 2)."""
    places = torch.arange(pieces, dtype=torch.int32, device=side.cu_seqlens.device)
    number = torch.searchsorted(side.cu_seqlens, places, right=True, out_int32=True)
    return torch.stack([other.cu_seqlens[number - 1], other.cu_seqlens[number]], dim=-1)


@torch.library.custom_op(f"{OPERATORS}::packed_attention", mutates_args=())
def packed_attention(
    x_MX: Tensor,
    memory_SY: Tensor | None,
    keys_M2: Tensor,
    queries_S2: Tensor,  # noqa: ARG001 - of the backward pass
    widths: list[int],
    causal: bool,
    p_drop: float,
    seed: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Compute scaled dot-product attention (§3.2.1), concatenated (M, H * V), and each row's log2-sum-exp2 (H, M).

    ``p_drop`` is the dropout rate of the weights; if it is above 0, ``seed`` () is needed.
    """
    from .packed_attention_triton import forward  # Triton comes with the CUDA wheels of torch

    return forward(x_MX, memory_SY, keys_M2, Widths(*widths), causal, p_drop, seed)


@packed_attention.register_fake
def _(x_MX: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
    heads, _, d_v = others[3]
    rows = x_MX.shape[0]
    wide = torch.promote_types(x_MX.dtype, torch.float32)
    return x_MX.new_empty(rows, heads * d_v), x_MX.new_empty(heads, rows, dtype=wide)


@torch.library.custom_op(f"{OPERATORS}::packed_attention_backward", mutates_args=())
def packed_attention_backward(
    grad_MX: Tensor,
    x_MX: Tensor,
    memory_SY: Tensor | None,
    out_MX: Tensor,
    lse_HM: Tensor,
    keys_M2: Tensor,
    queries_S2: Tensor,
    widths: list[int],
    causal: bool,
    p_drop: float,
    seed: Tensor | None,
) -> Tensor:
    """Return the gradients of ``x_MX`` and then of ``memory_SY``, end to end in one dimension."""
    from .packed_attention_triton import backward

    sizes = Widths(*widths)
    grads = x_MX.new_empty(_elements(x_MX, memory_SY))
    grad_x_MX, grad_memory_SY = _parts(grads, x_MX, memory_SY)
    into = sizes.split(grad_x_MX, grad_memory_SY)
    backward(into, grad_MX, x_MX, memory_SY, out_MX, lse_HM, keys_M2, queries_S2, sizes, causal, p_drop, seed)
    return grads


@packed_attention_backward.register_fake
def _(_: Tensor, x_MX: Tensor, memory_SY: Tensor | None, *_others: Any) -> Tensor:
    return x_MX.new_empty(_elements(x_MX, memory_SY))


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x_MX, memory_SY, keys_M2, queries_S2, *ctx.settings, seed = inputs
    ctx.save_for_backward(x_MX, memory_SY, *output, keys_M2, queries_S2, seed)
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, grad_MX: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
    x_MX, memory_SY, out_MX, lse_HM, keys_M2, queries_S2, seed = ctx.saved_tensors
    if grad_MX is None:
        return (None,) * 8
    grads = packed_attention_backward(
        grad_MX.contiguous(), x_MX, memory_SY, out_MX, lse_HM, keys_M2, queries_S2, *ctx.settings, seed
    )
    return *_parts(grads, x_MX, memory_SY), *[None] * 6


packed_attention.register_autograd(_backward, setup_context=_save)


def _elements(x_MX: Tensor, memory_SY: Tensor | None) -> int:
    return x_MX.numel() + (0 if memory_SY is None else memory_SY.numel())


def _parts(grads: Tensor, x_MX: Tensor, memory_SY: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Return the gradients of both tensors as views of one buffer."""
    grad_x_MX = grads[: x_MX.numel()].view(x_MX.shape)
    return grad_x_MX, None if memory_SY is None else grads[x_MX.numel() :].view(memory_SY.shape)
