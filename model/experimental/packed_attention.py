"""Attention over packed sentences as one operator with dropout, ``model::packed_attention``.

Never run on a GPU. ``REPRO_PACKED_ATTENTION=own`` takes it in place of torch's attention: on a GPU a Triton kernel for
short sentences (``packed_attention_triton``), on a CPU plain torch over padded rows. Both drop the same weights: the
random numbers are a function of seed, query, head and key (``philox``).

Self-attention takes one tensor with queries, keys and values side by side; cross-attention takes queries in the first
and keys and values in the second. The gradients of all are one buffer, so joining them costs no copy.

Shape suffixes are those of ``model.network.attention``; X and Y are the widths of the joined tensors. Offsets (N + 1)
are those of ``SequenceOffsets``: a sentence has queries if and only if it has keys.
"""

import math
from typing import Any

import torch
from torch import Tensor

from ..network.attention import PackedMask
from ..network.padding import padded_indices
from ..network.widths import Widths
from .philox import DRAWS, dropped_draws, kept

OPERATORS = __name__.partition(".")[0]
"""torch keeps one operator of a name per process, but a registered version has this package under a name of its own."""


def attend(mask: PackedMask, x_MX: Tensor, memory_SY: Tensor | None, widths: Widths, p_drop: float) -> Tensor:
    """``PackedMask.attend`` by this operator."""
    queries = mask.queries
    keys = mask.keys
    lengths = (queries.cu_seqlens, keys.cu_seqlens, queries.max_seqlen, keys.max_seqlen)
    seed = torch.randint(1 << 62, (), device=x_MX.device) if p_drop else None
    out_MX: Tensor = packed_attention(x_MX, memory_SY, *lengths, list(widths), mask.causal, p_drop, seed)[0]
    return out_MX


@torch.library.custom_op(f"{OPERATORS}::packed_attention", mutates_args=())
def packed_attention(
    x_MX: Tensor,
    memory_SY: Tensor | None,
    queries_at: Tensor,
    keys_at: Tensor,
    longest_query: int,
    longest_key: int,
    widths: list[int],
    causal: bool,
    p_drop: float,
    seed: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Scaled dot-product attention (§3.2.1), heads joined (M, H * V), and each row's log2-sum-exp2 (H, M).

    ``queries_at`` and ``keys_at`` are offsets, up to the last row of each tensor; ``longest_…`` are upper bounds of
    their differences. ``p_drop`` is the rate of dropout on the weights, with a ``seed`` () where it is above 0.
    """
    sizes = Widths(*widths)
    if x_MX.device.type == "cuda":
        from .packed_attention_triton import forward

        return forward(x_MX, memory_SY, queries_at, keys_at, sizes, causal, p_drop, seed)
    rows = _PaddedRows(x_MX, memory_SY, queries_at, keys_at, longest_query, longest_key, sizes, causal)
    weights_BHTS = rows.drop(rows.weights_BHTS, p_drop, seed)
    out_MX = x_MX.new_zeros(x_MX.shape[0], sizes.heads * sizes.d_v)
    out_MX[rows.query_rows] = rows.to_packed(weights_BHTS @ rows.v_BHSV).to(out_MX.dtype)
    lse_HM = rows.lse_BHT.new_zeros(sizes.heads, x_MX.shape[0])
    lse_HM[:, rows.query_rows] = rows.to_packed(rows.lse_BHT[..., None]).T
    return out_MX, lse_HM


@packed_attention.register_fake
def _(x_MX: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
    heads, _, d_v = others[5]
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
    queries_at: Tensor,
    keys_at: Tensor,
    longest_query: int,
    longest_key: int,
    widths: list[int],
    causal: bool,
    p_drop: float,
    seed: Tensor | None,
) -> Tensor:
    """The gradients of ``x_MX`` and then of ``memory_SY``, end to end in one dimension."""
    sizes = Widths(*widths)
    grads = x_MX.new_empty(_elements(x_MX, memory_SY))
    grad_x_MX, grad_memory_SY = _parts(grads, x_MX, memory_SY)
    if x_MX.device.type == "cuda":
        from .packed_attention_triton import backward

        into = sizes.split(grad_x_MX, grad_memory_SY)
        backward(into, grad_MX, x_MX, memory_SY, out_MX, lse_HM, queries_at, keys_at, sizes, causal, p_drop, seed)
        return grads
    rows = _PaddedRows(x_MX, memory_SY, queries_at, keys_at, longest_query, longest_key, sizes, causal)
    grad_BHTV = rows.to_padded(grad_MX, rows.queries_BT, rows.query_valid_BT)
    p_BHTS = rows.weights_BHTS
    grad_p_BHTS = rows.drop(grad_BHTV @ rows.v_BHSV.transpose(-1, -2), p_drop, seed)
    grad_scores_BHTS = p_BHTS * (grad_p_BHTS - (p_BHTS * grad_p_BHTS).sum(-1, keepdim=True)) / math.sqrt(sizes.d_k)
    grad_q_MX, grad_k_SX, grad_v_SX = sizes.split(grad_x_MX, grad_memory_SY)
    grad_q_MX[rows.query_rows] = rows.to_packed(grad_scores_BHTS @ rows.k_BHSK).to(grads.dtype)
    grad_k = rows.to_packed(grad_scores_BHTS.transpose(-1, -2) @ rows.q_BHTK, keys=True)
    grad_k_SX[rows.key_rows] = grad_k.to(grads.dtype)
    grad_v = rows.to_packed(rows.drop(p_BHTS, p_drop, seed).transpose(-1, -2) @ grad_BHTV, keys=True)
    grad_v_SX[rows.key_rows] = grad_v.to(grads.dtype)
    return grads


@packed_attention_backward.register_fake
def _(_: Tensor, x_MX: Tensor, memory_SY: Tensor | None, *_others: Any) -> Tensor:
    return x_MX.new_empty(_elements(x_MX, memory_SY))


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x_MX, memory_SY, queries_at, keys_at, *ctx.settings, seed = inputs
    ctx.save_for_backward(x_MX, memory_SY, *output, queries_at, keys_at, seed)
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, grad_MX: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
    x_MX, memory_SY, out_MX, lse_HM, queries_at, keys_at, seed = ctx.saved_tensors
    if grad_MX is None:
        return (None,) * 10
    grads = packed_attention_backward(
        grad_MX.contiguous(), x_MX, memory_SY, out_MX, lse_HM, queries_at, keys_at, *ctx.settings, seed
    )
    return *_parts(grads, x_MX, memory_SY), *[None] * 8


packed_attention.register_autograd(_backward, setup_context=_save)


def _elements(x_MX: Tensor, memory_SY: Tensor | None) -> int:
    return x_MX.numel() + (0 if memory_SY is None else memory_SY.numel())


def _parts(grads: Tensor, x_MX: Tensor, memory_SY: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """The gradients of both tensors as views of one buffer."""
    grad_x_MX = grads[: x_MX.numel()].view(x_MX.shape)
    return grad_x_MX, None if memory_SY is None else grads[x_MX.numel() :].view(memory_SY.shape)


class _PaddedRows:
    """The sentences as padded rows in at least float32, with their attention weights before dropout."""

    def __init__(
        self,
        x_MX: Tensor,
        memory_SY: Tensor | None,
        queries_at: Tensor,
        keys_at: Tensor,
        longest_query: int,
        longest_key: int,
        sizes: Widths,
        causal: bool,
    ) -> None:
        self.sizes = sizes
        self.queries_BT, self.query_valid_BT = padded_indices(queries_at, longest_query)
        keys_BS, self.key_valid_BS = padded_indices(keys_at, longest_key)
        self.query_rows = self.queries_BT[self.query_valid_BT]
        self.key_rows = keys_BS[self.key_valid_BS]
        q_MX, k_SX, v_SX = sizes.split(x_MX, memory_SY)
        self.q_BHTK = self.to_padded(q_MX, self.queries_BT, self.query_valid_BT)
        self.k_BHSK = self.to_padded(k_SX, keys_BS, self.key_valid_BS)
        self.v_BHSV = self.to_padded(v_SX, keys_BS, self.key_valid_BS)
        scores_BHTS = self.q_BHTK @ self.k_BHSK.transpose(-1, -2) / math.sqrt(sizes.d_k)
        seen = self.key_valid_BS[:, None, None]
        if causal:
            seen = seen & torch.ones(scores_BHTS.shape[-2:], dtype=torch.bool, device=x_MX.device).tril()
        scores_BHTS = scores_BHTS.masked_fill(~seen, -math.inf)
        self.weights_BHTS = scores_BHTS.softmax(-1)
        self.lse_BHT = scores_BHTS.logsumexp(-1) / math.log(2)

    def to_padded(self, values_MX: Tensor, index_BT: Tensor, valid_BT: Tensor) -> Tensor:
        """(M, H * W) as (B, H, T, W), zero where there is no piece."""
        wide = torch.promote_types(values_MX.dtype, torch.float32)
        values_BTX = values_MX[index_BT].to(wide) * valid_BT[..., None]
        return values_BTX.view(*values_BTX.shape[:-1], self.sizes.heads, -1).transpose(1, 2)

    def to_packed(self, values_BHTW: Tensor, keys: bool = False) -> Tensor:
        """(B, H, T, W) as (M', H * W) for the M' positions in ``query_rows`` or ``key_rows``."""
        return values_BHTW.transpose(1, 2).flatten(2)[self.key_valid_BS if keys else self.query_valid_BT]

    def drop(self, values_BHTS: Tensor, p_drop: float, seed: Tensor | None) -> Tensor:
        """Dropout of the values at the weights' places: dropped or scaled. It is its own gradient."""
        dropped = dropped_draws(p_drop)
        if not dropped:
            return values_BHTS
        assert seed is not None
        kept_BHTS = kept(seed, self.queries_BT, self.sizes.heads, values_BHTS.shape[-1], p_drop)
        return values_BHTS * kept_BHTS * (DRAWS / (DRAWS - dropped))
