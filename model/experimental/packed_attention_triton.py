"""Triton kernels of ``model::packed_attention``: flash attention over packed sentences in tiles of packed positions.

Example: a program of the forward pass has the tile of queries 128 to 191. They belong to three sentences with keys 101
to 203. The program visits the four tiles of 32 keys from key 96 on, and each query sees only the keys of its own
sentence.

The flash-attention kernel of torch uses separate tiles of 128 positions for each sentence: for sentences of 28 pieces
a twentieth of its work is useful. Here each program has the same amount of work for all lengths. There are no atomic
additions, so a repeated training gives the same weights.

Scores are in units of log 2, for ``exp2``. Names in capitals are pointers or compile-time constants. KEYS holds begin
and end of the keys that each query sees (before the causal mask), QUERIES begin and end of the queries of each key.
"""

import math
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..network.attention import Widths

DRAWS = 1 << 31
"""The number of values of a 31-bit random number, which decides whether a weight is dropped."""
# Loops over tiles begin at multiples of 16. Dropout needs multiples of 4.


class Tiles(NamedTuple):
    """Positions of a program's own tile and of the tiles that it visits; Triton's numbers of warps and stages."""

    own: int
    visited: int
    warps: int
    stages: int


FORWARD = Tiles(own=64, visited=32, warps=4, stages=2)
GRAD_QUERIES = Tiles(own=64, visited=32, warps=4, stages=2)
GRAD_KEYS = Tiles(own=64, visited=32, warps=4, stages=3)


@triton.jit
def _load(POINTER, rows, stride, valid, first, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """Load rows of one head; zero where a row is not valid and beyond the head's width."""
    columns = tl.arange(0, BLOCK)
    place = POINTER + rows[:, None].to(tl.int64) * stride + first + columns[None, :]
    if WIDTH == BLOCK:
        return tl.load(place, mask=valid[:, None], other=0.0)
    return tl.load(place, mask=valid[:, None] & (columns < WIDTH)[None, :], other=0.0)


@triton.jit
def _store(POINTER, rows, stride, valid, first, values, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    mask = valid[:, None] & (columns < WIDTH)[None, :]
    place = POINTER + rows[:, None].to(tl.int64) * stride + first + columns[None, :]
    tl.store(place, values.to(POINTER.dtype.element_ty), mask=mask)


@triton.jit
def _keys_of(KEYS, query, valid, CAUSAL: tl.constexpr):
    """Return begin and end of the keys that each query sees; an invalid query sees none."""
    begin = tl.load(KEYS + 2 * query, mask=valid, other=0)
    end = tl.load(KEYS + 2 * query + 1, mask=valid, other=0)
    if CAUSAL:
        end = tl.minimum(end, query + 1)
    return begin, end


@triton.jit
def _scores(q, k, key, begin, end, scale):
    """Return the scaled scores of a tile of queries and keys."""
    seen = (key[None, :] >= begin[:, None]) & (key[None, :] < end[:, None])
    return tl.where(seen, tl.dot(q, tl.trans(k), input_precision="ieee") * scale, -1e30)


@triton.jit
def _kept(seed, query, key_begin, head, DROPPED: tl.constexpr, OWN: tl.constexpr, KEYS: tl.constexpr):
    """Return which weights of a tile dropout keeps, from word ``key % 4`` of Philox counter (key // 4, query, head)."""
    block = key_begin // 4 + tl.arange(0, KEYS // 4)
    zero = query[:, None] * 0 + block[None, :] * 0
    w0, w1, w2, w3 = tl.philox(seed, zero + block[None, :], zero + query[:, None], zero + head, zero)
    words = tl.reshape(tl.join(tl.join(w0, w2), tl.join(w1, w3)), (OWN, KEYS))
    return (words >> 1).to(tl.int32) >= DROPPED


@triton.jit
def _forward(
    Q, K, V, OUT, LSE, KEYS, SEED, q_stride, k_stride, v_stride, out_stride, queries, keys, scale, gain,
    CAUSAL: tl.constexpr, DROPPED: tl.constexpr, T: tl.constexpr, TK: tl.constexpr,
    DK: tl.constexpr, DV: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(0)
    first = tl.program_id(1) * T
    query = first + tl.arange(0, T)
    valid = query < queries
    begin, end = _keys_of(KEYS, query, valid, CAUSAL)
    q = _load(Q, query, q_stride, valid, head * DK, DK, BK)
    top = tl.full([T], -1e30, tl.float32)
    total = tl.zeros([T], tl.float32)
    acc = tl.zeros([T, BV], tl.float32)
    if DROPPED > 0:
        seed = tl.load(SEED)
    for at in range(tl.load(KEYS + 2 * first) // 16 * 16, tl.max(end, 0), TK):
        key = at + tl.arange(0, TK)
        k = _load(K, key, k_stride, key < keys, head * DK, DK, BK)
        v = _load(V, key, v_stride, key < keys, head * DV, DV, BV)
        s = _scores(q, k, key, begin, end, scale)
        higher = tl.maximum(top, tl.max(s, 1))
        # The sums of a row are meaningless before its first visible key; this key multiplies them by 0.
        p = tl.exp2(s - higher[:, None])
        fade = tl.exp2(top - higher)
        total = total * fade + tl.sum(p, 1)
        if DROPPED > 0:
            p = tl.where(_kept(seed, query, at, head, DROPPED, T, TK), p, 0.0)
        acc = acc * fade[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
        top = higher
    _store(OUT, query, out_stride, valid, head * DV, acc * (gain / total)[:, None], DV, BV)
    tl.store(LSE + head * queries + query, top + tl.log2(total), mask=valid)


@triton.jit
def _grad_queries(
    Q, K, V, OUT, GRAD, LSE, DELTA, DQ, KEYS, SEED,
    q_stride, k_stride, v_stride, out_stride, dq_stride, queries, keys, scale, slope, gain,
    CAUSAL: tl.constexpr, DROPPED: tl.constexpr, T: tl.constexpr, TK: tl.constexpr,
    DK: tl.constexpr, DV: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of a tile of queries, and DELTA (H, M), the sums of output times gradient of the output."""
    head = tl.program_id(0)
    first = tl.program_id(1) * T
    query = first + tl.arange(0, T)
    valid = query < queries
    begin, end = _keys_of(KEYS, query, valid, CAUSAL)
    q = _load(Q, query, q_stride, valid, head * DK, DK, BK)
    g = _load(GRAD, query, out_stride, valid, head * DV, DV, BV)
    out = _load(OUT, query, out_stride, valid, head * DV, DV, BV)
    delta = tl.sum(g.to(tl.float32) * out.to(tl.float32), 1)
    tl.store(DELTA + head * queries + query, delta, mask=valid)
    lse = tl.load(LSE + head * queries + query, mask=valid, other=0.0)
    dq = tl.zeros([T, BK], tl.float32)
    if DROPPED > 0:
        seed = tl.load(SEED)
    for at in range(tl.load(KEYS + 2 * first) // 16 * 16, tl.max(end, 0), TK):
        key = at + tl.arange(0, TK)
        k = _load(K, key, k_stride, key < keys, head * DK, DK, BK)
        v = _load(V, key, v_stride, key < keys, head * DV, DV, BV)
        p = tl.exp2(_scores(q, k, key, begin, end, scale) - lse[:, None])
        dp = tl.dot(g, tl.trans(v), input_precision="ieee")
        if DROPPED > 0:
            dp = tl.where(_kept(seed, query, at, head, DROPPED, T, TK), dp * gain, 0.0)
        ds = p * (dp - delta[:, None])
        dq += tl.dot(ds.to(k.dtype), k, input_precision="ieee")
    _store(DQ, query, dq_stride, valid, head * DK, dq * slope, DK, BK)


@triton.jit
def _grad_keys(
    Q, K, V, GRAD, LSE, DELTA, DK_, DV_, KEYS, QUERIES, SEED,
    q_stride, k_stride, v_stride, out_stride, dk_stride, dv_stride, queries, keys, scale, slope, gain,
    CAUSAL: tl.constexpr, DROPPED: tl.constexpr, T: tl.constexpr, TQ: tl.constexpr,
    DK: tl.constexpr, DV: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of a tile of keys and values."""
    head = tl.program_id(0)
    first = tl.program_id(1) * T
    key = first + tl.arange(0, T)
    valid = key < keys
    k = _load(K, key, k_stride, valid, head * DK, DK, BK)
    v = _load(V, key, v_stride, valid, head * DV, DV, BV)
    dk = tl.zeros([T, BK], tl.float32)
    dv = tl.zeros([T, BV], tl.float32)
    begin = tl.load(QUERIES + 2 * first)
    if CAUSAL:
        begin = tl.maximum(begin, first)
    end = tl.load(QUERIES + 2 * (tl.minimum(first + T, keys) - 1) + 1)
    if DROPPED > 0:
        seed = tl.load(SEED)
    for at in range(begin // 16 * 16, end, TQ):
        query = at + tl.arange(0, TQ)
        there = query < queries
        first_key, last_key = _keys_of(KEYS, query, there, CAUSAL)
        q = _load(Q, query, q_stride, there, head * DK, DK, BK)
        g = _load(GRAD, query, out_stride, there, head * DV, DV, BV)
        lse = tl.load(LSE + head * queries + query, mask=there, other=0.0)
        delta = tl.load(DELTA + head * queries + query, mask=there, other=0.0)
        # Keys by queries: only the right side of a product can be transposed without a copy.
        seen = (key[:, None] >= first_key[None, :]) & (key[:, None] < last_key[None, :])
        s = tl.where(seen, tl.dot(k, tl.trans(q), input_precision="ieee") * scale, -1e30)
        p = tl.exp2(s - lse[None, :])
        dp = tl.dot(v, tl.trans(g), input_precision="ieee")
        dropped_p = p
        if DROPPED > 0:
            kept = tl.trans(_kept(seed, query, first, head, DROPPED, TQ, T))
            dropped_p = tl.where(kept, p * gain, 0.0)
            dp = tl.where(kept, dp * gain, 0.0)
        ds = p * (dp - delta[None, :])
        dv += tl.dot(dropped_p.to(g.dtype), g, input_precision="ieee")
        dk += tl.dot(ds.to(q.dtype), q, input_precision="ieee")
    _store(DK_, key, dk_stride, valid, head * DK, dk * slope, DK, BK)
    _store(DV_, key, dv_stride, valid, head * DV, dv, DV, BV)


def forward(
    x_MX: Tensor,
    memory_SY: Tensor | None,
    keys_M2: Tensor,
    sizes: Widths,
    causal: bool,
    p_drop: float,
    seed: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Compute ``model::packed_attention``."""
    q, k, v = sizes.split(x_MX, memory_SY)
    out_MX = x_MX.new_empty(x_MX.shape[0], sizes.heads * sizes.d_v)
    lse_HM = x_MX.new_empty(sizes.heads, x_MX.shape[0], dtype=torch.float32)
    scale, _, gain = _factors(sizes, p_drop)
    _forward[_grid(sizes, q, FORWARD)](
        q, k, v, out_MX, lse_HM, keys_M2, keys_M2 if seed is None else seed,
        q.stride(0), k.stride(0), v.stride(0), out_MX.stride(0), len(q), len(k), scale, gain,
        TK=FORWARD.visited, **constants(sizes, causal, p_drop, FORWARD),
    )  # fmt: skip
    return out_MX, lse_HM


def backward(
    into: tuple[Tensor, Tensor, Tensor],
    grad_MX: Tensor,
    x_MX: Tensor,
    memory_SY: Tensor | None,
    out_MX: Tensor,
    lse_HM: Tensor,
    keys_M2: Tensor,
    queries_S2: Tensor,
    sizes: Widths,
    causal: bool,
    p_drop: float,
    seed: Tensor | None,
) -> None:
    """Write the gradients of queries, keys and values ``into`` these views; ``grad_MX`` must be contiguous."""
    q, k, v = sizes.split(x_MX, memory_SY)
    dq, dk, dv = into
    scale, slope, gain = _factors(sizes, p_drop)
    seed = keys_M2 if seed is None else seed
    delta_HM = torch.empty_like(lse_HM)
    _grad_queries[_grid(sizes, q, GRAD_QUERIES)](
        q, k, v, out_MX, grad_MX, lse_HM, delta_HM, dq, keys_M2, seed,
        q.stride(0), k.stride(0), v.stride(0), out_MX.stride(0), dq.stride(0), len(q), len(k), scale, slope, gain,
        TK=GRAD_QUERIES.visited, **constants(sizes, causal, p_drop, GRAD_QUERIES),
    )  # fmt: skip
    _grad_keys[_grid(sizes, k, GRAD_KEYS)](
        q, k, v, grad_MX, lse_HM, delta_HM, dk, dv, keys_M2, queries_S2, seed,
        q.stride(0), k.stride(0), v.stride(0), out_MX.stride(0), dk.stride(0), dv.stride(0),
        len(q), len(k), scale, slope, gain,
        TQ=GRAD_KEYS.visited, **constants(sizes, causal, p_drop, GRAD_KEYS),
    )  # fmt: skip


def dropped_draws(p_drop: float) -> int:
    """Return how many of the ``DRAWS`` values drop a weight."""
    return min(round(p_drop * DRAWS), DRAWS - 1)


def _factors(sizes: Widths, p_drop: float) -> tuple[float, float, float]:
    """Return the factors of the scores in units of log 2, of their gradients, and of the weights that dropout keeps."""
    slope = 1 / math.sqrt(sizes.d_k)
    return slope / math.log(2), slope, DRAWS / (DRAWS - dropped_draws(p_drop))


def _grid(sizes: Widths, rows: Tensor, tiles: Tiles) -> tuple[int, int]:
    return sizes.heads, triton.cdiv(len(rows), tiles.own)


def constants(sizes: Widths, causal: bool, p_drop: float, tiles: Tiles) -> dict[str, Any]:
    """Return the compile-time constants. A product needs tiles of at least 16 columns."""
    blocks = [max(16, triton.next_power_of_2(width)) for width in (sizes.d_k, sizes.d_v)]
    return {
        "CAUSAL": causal,
        "DROPPED": dropped_draws(p_drop),
        "T": tiles.own,
        "DK": sizes.d_k,
        "DV": sizes.d_v,
        "BK": blocks[0],
        "BV": blocks[1],
        "num_warps": tiles.warps,
        "num_stages": tiles.stages,
    }
