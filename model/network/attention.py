"""Multi-head attention (§3.2) over padded or packed sentences; docs/annotated/index.md explains it.

    scores  = Q K^T / sqrt(d_k)    how well each query fits each key
    weights = softmax(scores)      over the keys that the mask leaves visible: each row sums to 1
    output  = weights V            for each head; W^O projects the concatenated outputs of all heads

Shape suffixes:
    B sentences     S keys' positions     T queries' positions     D d_model     H heads     K d_k     V d_v
    M positions of many sentences end to end

In shapes "…" stands for B and T (padded) or for M (packed). The dimension H is before T (padded) or after M (packed).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..config import Model
from .linear import Linear, linear

KeysValues = tuple[Tensor, ...]
"""Keys (B, H, S, K) and values (B, H, S, V) of one attention; packed: one tensor with both, (S, H * (K + V))."""


class Widths(NamedTuple):
    """Number of heads, and the width of each head's queries and keys (``d_k``) and values (``d_v``)."""

    heads: int
    d_k: int
    d_v: int

    def split(self, x_MX: Tensor, memory_SY: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries (M, H * K), keys (S, H * K) and values (S, H * V) as views."""
        keys = self.heads * self.d_k
        values = self.heads * self.d_v
        if memory_SY is None:
            q, k, v = torch.split(x_MX, [keys, keys, values], dim=-1)
            return q, k, v
        k, v = torch.split(memory_SY, [keys, values], dim=-1)
        return x_MX, k, v


@dataclass(frozen=True)
class PaddedMask:
    """The mask of padded rows: ``mask`` (broadcast to B, H, T, S) is true for visible keys; None: all are visible."""

    mask: Tensor | None = None
    causal: bool = False

    def attend(self, q_BHTK: Tensor, k_BHSK: Tensor, v_BHSV: Tensor, p_drop: float) -> Tensor:
        """Compute scaled dot-product attention (§3.2.1) with concatenated heads: (B, T, H * V)."""
        dtype = q_BHTK.dtype
        if q_BHTK.device.type == "cpu" and dtype == torch.bfloat16:
            # On a CPU torch's backward pass takes eight times as long in bfloat16 as in float32.
            with torch.autocast("cpu", enabled=False):
                return self.attend(q_BHTK.float(), k_BHSK.float(), v_BHSV.float(), p_drop).to(dtype)
        x_BHTV = F.scaled_dot_product_attention(q_BHTK, k_BHSK, v_BHSV, self.mask, p_drop, self.causal)
        return x_BHTV.transpose(1, 2).flatten(2)

    def weights(self, q_BHTK: Tensor, k_BHSK: Tensor) -> Tensor:
        """Return the attention weights of ``attend``: (B, H, T, S); each row sums to 1."""
        scores_BHTS = q_BHTK @ k_BHSK.transpose(-1, -2) / math.sqrt(q_BHTK.shape[-1])
        if self.mask is not None:
            scores_BHTS = scores_BHTS.masked_fill(~self.mask, -math.inf)
        if self.causal:
            later_BHTS = torch.ones_like(scores_BHTS, dtype=torch.bool).triu(1)
            scores_BHTS = scores_BHTS.masked_fill(later_BHTS, -math.inf)
        return scores_BHTS.softmax(dim=-1)


@dataclass(frozen=True)
class SequenceOffsets:
    """Offsets of packed sentences: ``cu_seqlens`` (N + 1) int32 from 0 to M; the last sentences may be empty.

    ``max_seqlen`` is an upper bound of the sentence lengths.
    """

    cu_seqlens: Tensor
    max_seqlen: int

    def padded_indices(self) -> tuple[Tensor, Tensor]:
        """Return the positions (B, max_seqlen) of the pieces of each non-empty sentence, and which ones are valid."""
        begins_N = self.cu_seqlens[:-1].long()
        ends_N = self.cu_seqlens[1:].long()
        filled_N = ends_N > begins_N
        index_BT = begins_N[filled_N, None] + torch.arange(self.max_seqlen, device=self.cu_seqlens.device)
        valid_BT = index_BT < ends_N[filled_N, None]
        return index_BT.where(valid_BT, 0), valid_BT

    def valid_positions(self) -> Tensor:
        """Return which positions of ``to_padded`` contain a piece: (N, max_seqlen)."""
        return torch.arange(self.max_seqlen, device=self.cu_seqlens.device) < self.cu_seqlens.diff()[:, None]

    def to_padded(self, values: Tensor) -> Tensor:
        """Copy values (M, …) to padded rows (N, max_seqlen, …), zero in padding; empty sentences get a row too."""
        places_NT = self.cu_seqlens[:-1, None] + torch.arange(self.max_seqlen, device=self.cu_seqlens.device)
        padding_NT = ~self.valid_positions()
        padding = padding_NT.view(*padding_NT.shape, *[1] * (values.dim() - 1))
        return values[places_NT.clamp_max(len(values) - 1)].masked_fill(padding, 0)


@dataclass(frozen=True)
class PackedMask:
    """The mask of packed sentences: a query sees the keys of its sentence; if ``causal``, only up to its position."""

    queries: SequenceOffsets
    keys: SequenceOffsets
    causal: bool = False
    attention: "PackedAttention | None" = None
    """The function that ``attend`` calls instead of torch's attention (``model.experimental``)."""

    def attend(self, x_MX: Tensor, memory_SY: Tensor | None, widths: Widths, p_drop: float) -> Tensor:
        """Compute scaled dot-product attention (§3.2.1) with concatenated heads: (M, H * V).

        ``x_MX`` holds queries, keys and values side by side; if ``memory_SY`` holds keys and values, ``x_MX`` holds
        only queries.
        """
        if self.attention is not None:
            return self.attention(self, x_MX, memory_SY, widths, p_drop)
        q_MHK, k_MHK, v_MHV = (x.view(*x.shape[:-1], widths.heads, -1) for x in widths.split(x_MX, memory_SY))
        # torch's operator for packed sentences needs a GPU and has no dropout.
        if x_MX.device.type == "cuda" and not p_drop:
            return self._attend_packed(q_MHK, k_MHK, v_MHV)
        return self._attend_padded(q_MHK, k_MHK, v_MHV, p_drop)

    def _attend_packed(self, q_MHK: Tensor, k_MHK: Tensor, v_MHV: Tensor) -> Tensor:
        """Compute ``attend`` with torch's operator for packed sentences."""
        from torch.nn.attention.varlen import varlen_attn  # imported here because only a GPU needs it

        q = self.queries
        k = self.keys
        lengths = (q.cu_seqlens, k.cu_seqlens, q.max_seqlen, k.max_seqlen)
        window = (-1, 0 if self.causal else -1)  # positions that a query sees before and after it; -1: all
        out_MHV = varlen_attn(q_MHK, k_MHK, v_MHV, *lengths, window_size=window)
        assert isinstance(out_MHV, Tensor)
        return out_MHV.flatten(1)

    def _attend_padded(self, q_MHK: Tensor, k_MHK: Tensor, v_MHV: Tensor, p_drop: float) -> Tensor:
        """Compute ``attend`` over padded rows, the fastest way on a CPU."""
        index_BT, valid_BT = self.queries.padded_indices()
        index_BS, seen_BS = self.keys.padded_indices()
        q_BHTK = q_MHK[index_BT].transpose(1, 2)
        k_BHSK = k_MHK[index_BS].transpose(1, 2)
        v_BHSV = v_MHV[index_BS].transpose(1, 2)
        seen = seen_BS[:, None, None]
        if self.causal:
            steps = q_BHTK.shape[2]
            seen = seen & torch.ones(steps, steps, dtype=torch.bool, device=seen.device).tril()
        x_BTX = PaddedMask(seen).attend(q_BHTK, k_BHSK, v_BHSV, p_drop)
        x_MX = x_BTX.new_zeros(q_MHK.shape[0], x_BTX.shape[-1])
        return x_MX.index_put((index_BT[valid_BT],), x_BTX[valid_BT])

    def weights(self, q_MHK: Tensor, k_MHK: Tensor) -> Tensor:
        """Return the attention weights of ``attend`` as padded rows: (N, H, T, S).

        T and S are the ``max_seqlen`` of queries and keys. Rows of padding and of empty sentences have no meaning.
        """
        q_NHTK = self.queries.to_padded(q_MHK).transpose(1, 2)
        k_NHSK = self.keys.to_padded(k_MHK).transpose(1, 2)
        valid_NS = self.keys.valid_positions()
        # The softmax over no key would be NaN, so an empty sentence sees all positions.
        seen_NS = valid_NS | ~valid_NS[:, :1]
        return PaddedMask(seen_NS[:, None, None], self.causal).weights(q_NHTK, k_NHSK)


PackedAttention = Callable[[PackedMask, Tensor, Tensor | None, Widths, float], Tensor]
"""An implementation of ``PackedMask.attend``."""

AttentionMask = PaddedMask | PackedMask
"""Which keys a query sees, and the memory layout of queries and keys."""


class Attention(nn.Module):
    """Multi-head attention (§3.2): attends in ``heads`` subspaces, then concatenates and projects.

    Without ``qkv_bias``, W^Q, W^K and W^V have no bias, as in the paper. The softmax is invariant to a bias of the
    keys: its gradient is rounding error, and Adam scales it up to full steps.
    """

    def __init__(self, config: Model) -> None:
        super().__init__()
        self.heads = config.heads
        self.p_drop = config.p_drop_attention
        self.widths = [config.heads * config.d_k, config.heads * config.d_k, config.heads * config.d_v]
        self.head_widths = Widths(config.heads, config.d_k, config.d_v)
        self.out = Linear(config.heads * config.d_v, config.d_model)

    def split_heads(self, x: Tensor) -> Tensor:
        """Reshape (B, T, H * width) to (B, H, T, width), or (M, H * width) to (M, H, width)."""
        x = x.view(*x.shape[:-1], self.heads, -1)
        return x.transpose(1, 2) if x.dim() == 4 else x

    @property
    def p_drop_now(self) -> float:
        """The dropout rate of the attention weights; 0 outside training."""
        return self.p_drop if self.training else 0.0


class SelfAttention(Attention):
    """Self-attention (§3.2.3): one matrix product of the input gives queries, keys and values."""

    def __init__(self, config: Model) -> None:
        super().__init__(config)
        self.query_keys_values = Linear(config.d_model, sum(self.widths), bias=config.qkv_bias)

    def forward(self, x: Tensor, attention_mask: AttentionMask) -> Tensor:
        """Attend over ``x`` (…, D)."""
        joined = self.query_keys_values(x)
        if isinstance(attention_mask, PackedMask):
            return self.out(attention_mask.attend(joined, None, self.head_widths, self.p_drop_now))
        q, k, v = (self.split_heads(x) for x in joined.split(self.widths, dim=-1))
        return self.out(attention_mask.attend(q, k, v, self.p_drop_now))

    def weights(self, x: Tensor, attention_mask: AttentionMask) -> Tensor:
        """Return the attention weights of ``forward``: (B, H, T, T); each row sums to 1.

        Packed sentences have the shape of ``PackedMask.weights``."""
        q, k, _ = (self.split_heads(x) for x in self.query_keys_values(x).split(self.widths, dim=-1))
        return attention_mask.weights(q, k)


class CrossAttention(Attention):
    """Cross-attention (§3.2.3): queries from the decoder, keys and values from the encoder's output."""

    def __init__(self, config: Model) -> None:
        super().__init__(config)
        self.query = Linear(config.d_model, self.widths[0], bias=config.qkv_bias)
        self.keys_values = Linear(config.d_model, sum(self.widths[1:]), bias=config.qkv_bias)

    def project_memory(self, memory: Tensor) -> KeysValues:
        """Return keys and values of the encoder's output; one call per source is enough."""
        return self.split_memory(self.keys_values(memory))

    def split_memory(self, joined: Tensor) -> KeysValues:
        """Split the product (…, H * (K + V)) into keys and values, as ``project_memory`` returns them."""
        if joined.dim() == 2:
            return (joined,)
        k, v = torch.split(joined, self.widths[1:], dim=-1)
        return self.split_heads(k), self.split_heads(v)

    def forward(self, x: Tensor, memory: KeysValues, attention_mask: AttentionMask) -> Tensor:
        """Attend over the keys and values of the encoder's output."""
        if isinstance(attention_mask, PackedMask):
            return self.out(attention_mask.attend(self.query(x), memory[0], self.head_widths, self.p_drop_now))
        k, v = memory
        return self.out(attention_mask.attend(self.split_heads(self.query(x)), k, v, self.p_drop_now))

    def weights(self, x: Tensor, memory: KeysValues, attention_mask: AttentionMask) -> Tensor:
        """Return the attention weights of ``forward``: (B, H, T, S); each row sums to 1.

        Packed sentences have the shape of ``PackedMask.weights``."""
        keys = memory[0]
        if isinstance(attention_mask, PackedMask):
            keys = self.split_heads(keys[:, : self.widths[1]])
        return attention_mask.weights(self.split_heads(self.query(x)), keys)


def project_memories(crosses: Sequence[CrossAttention], memory: Tensor) -> list[KeysValues]:
    """Return ``CrossAttention.project_memory`` of every layer.

    In bfloat16 all layers share one matrix product: its backward pass sums the memory's gradient over the layers in
    float32.
    """
    if memory.dtype != torch.bfloat16:
        return [cross.project_memory(memory) for cross in crosses]
    products = [cross.keys_values for cross in crosses]
    bias = None if products[0].bias is None else torch.cat([product.bias for product in products])
    joined = linear(memory, torch.cat([product.weight for product in products]), bias)
    parts = joined.chunk(len(crosses), dim=-1)
    return [cross.split_memory(part) for cross, part in zip(crosses, parts, strict=True)]
