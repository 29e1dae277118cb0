"""Triton kernels of ``model::packed_attention``: one program for each sentence and head, in tiles of 32 positions.

The flash-attention kernel of torch works in tiles of 128 positions: for sentences of 28 pieces a twentieth of its work
is useful. These kernels use no atomic additions, so a repeated training gives the same weights. A sentence that fits
one tile is one pass: its weights are computed once, for all three gradients. A longer one is a loop over its tiles, so
there is no greatest length.

Scores are in units of log 2, for ``exp2``. Names in capitals are pointers or compile-time constants.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..network.attention import Widths

TILE = 32
DRAWS = 1 << 31
"""Number of values of the 31 bits that decide whether a weight is dropped."""
WIDE = 64
"""Heads wider than this have twice the warps."""


def warps(sizes: Widths) -> tuple[int, int]:
    """Of a program, forward and backward: as many as spill no register on sm_90."""
    return (4, 8) if max(sizes.d_k, sizes.d_v) > WIDE else (2, 4)


@triton.jit
def _load(POINTER, rows, stride, valid, first, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """Rows of one head; zero where a row is not valid or beyond the head's width."""
    columns = tl.arange(0, BLOCK)
    mask = valid[:, None] & (columns < WIDTH)[None, :]
    return tl.load(POINTER + rows[:, None] * stride + first + columns[None, :], mask=mask, other=0.0)


@triton.jit
def _store(POINTER, rows, stride, valid, first, values, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    mask = valid[:, None] & (columns < WIDTH)[None, :]
    place = POINTER + rows[:, None] * stride + first + columns[None, :]
    tl.store(place, values.to(POINTER.dtype.element_ty), mask=mask)


@triton.jit
def _scores(q, k, query, key, keys, scale, CAUSAL: tl.constexpr):
    """Scaled scores of a tile; queries and keys are numbered within the sentence, which has ``keys`` keys."""
    seen = (key < keys)[None, :]
    if CAUSAL:
        seen = seen & (key[None, :] <= query[:, None])
    return tl.where(seen, tl.dot(q, tl.trans(k), input_precision="ieee") * scale, -1e30)


@triton.jit
def _kept(seed, row, key_begin, head, DROPPED: tl.constexpr, T: tl.constexpr):
    """Which weights of a tile dropout keeps: word ``key % 4`` of the Philox counter (key // 4, query, head) decides."""
    block = key_begin // 4 + tl.arange(0, T // 4)
    zero = row[:, None] * 0 + block[None, :] * 0
    w0, w1, w2, w3 = tl.philox(seed, zero + block[None, :], zero + row[:, None], zero + head, zero)
    words = tl.reshape(tl.join(tl.join(w0, w2), tl.join(w1, w3)), (T, T))
    return (words >> 1).to(tl.int32) >= DROPPED


@triton.jit
def _forward(
    Q, K, V, OUT, LSE, QUERIES, KEYS, SEED, q_stride, k_stride, v_stride, out_stride, rows, scale, gain,
    CAUSAL: tl.constexpr, DROPPED: tl.constexpr, T: tl.constexpr,
    DK: tl.constexpr, DV: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr,
):  # fmt: skip
    sentence = tl.program_id(0)
    head = tl.program_id(1)
    q_begin = tl.load(QUERIES + sentence)
    k_begin = tl.load(KEYS + sentence)
    queries = tl.load(QUERIES + sentence + 1) - q_begin
    keys = tl.load(KEYS + sentence + 1) - k_begin
    t = tl.arange(0, T)
    if DROPPED > 0:
        seed = tl.load(SEED)
    for q_tile in range(0, queries, T):
        query = q_tile + t
        q = _load(Q, q_begin + query, q_stride, query < queries, head * DK, DK, BK)
        top = tl.full([T], -1e30, tl.float32)
        total = tl.zeros([T], tl.float32)
        acc = tl.zeros([T, BV], tl.float32)
        end = keys
        if CAUSAL:
            end = tl.minimum(keys, q_tile + T)
        for k_tile in range(0, end, T):
            key = k_tile + t
            k = _load(K, k_begin + key, k_stride, key < keys, head * DK, DK, BK)
            v = _load(V, k_begin + key, v_stride, key < keys, head * DV, DV, BV)
            s = _scores(q, k, query, key, keys, scale, CAUSAL)
            higher = tl.maximum(top, tl.max(s, 1))
            p = tl.exp2(s - higher[:, None])
            fade = tl.exp2(top - higher)
            total = total * fade + tl.sum(p, 1)
            if DROPPED > 0:
                p = tl.where(_kept(seed, q_begin + query, k_tile, head, DROPPED, T), p, 0.0)
            acc = acc * fade[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
            top = higher
        _store(OUT, q_begin + query, out_stride, query < queries, head * DV, acc * (gain / total)[:, None], DV, BV)
        tl.store(LSE + head * rows + q_begin + query, top + tl.log2(total), mask=query < queries)


@triton.jit
def _backward(
    Q, K, V, OUT, GRAD, LSE, DQ, DK_, DV_, QUERIES, KEYS, SEED,
    q_stride, k_stride, v_stride, out_stride, dq_stride, dk_stride, dv_stride, rows, scale, slope, gain,
    CAUSAL: tl.constexpr, DROPPED: tl.constexpr, T: tl.constexpr,
    DK: tl.constexpr, DV: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr,
):  # fmt: skip
    sentence = tl.program_id(0)
    head = tl.program_id(1)
    q_begin = tl.load(QUERIES + sentence)
    k_begin = tl.load(KEYS + sentence)
    queries = tl.load(QUERIES + sentence + 1) - q_begin
    keys = tl.load(KEYS + sentence + 1) - k_begin
    t = tl.arange(0, T)
    seed = 0
    if DROPPED > 0:
        seed = tl.load(SEED)
    if (queries <= T) & (keys <= T):
        if queries > 0:
            q = _load(Q, q_begin + t, q_stride, t < queries, head * DK, DK, BK)
            k = _load(K, k_begin + t, k_stride, t < keys, head * DK, DK, BK)
            v = _load(V, k_begin + t, v_stride, t < keys, head * DV, DV, BV)
            g = _load(GRAD, q_begin + t, out_stride, t < queries, head * DV, DV, BV)
            s = _scores(q, k, t, t, keys, scale, CAUSAL)
            p = tl.exp2(s - tl.max(s, 1)[:, None])
            p = p / tl.sum(p, 1)[:, None]
            dp = tl.dot(g, tl.trans(v), input_precision="ieee")
            dropped_p = p
            if DROPPED > 0:
                kept = _kept(seed, q_begin + t, 0, head, DROPPED, T)
                dropped_p = tl.where(kept, p * gain, 0.0)
                dp = tl.where(kept, dp * gain, 0.0)
            ds = (p * (dp - tl.sum(p * dp, 1)[:, None]) * slope).to(q.dtype)
            dv = tl.dot(tl.trans(dropped_p.to(g.dtype)), g, input_precision="ieee")
            _store(DV_, k_begin + t, dv_stride, t < keys, head * DV, dv, DV, BV)
            dk = tl.dot(tl.trans(ds), q, input_precision="ieee")
            _store(DK_, k_begin + t, dk_stride, t < keys, head * DK, dk, DK, BK)
            dq = tl.dot(ds, k, input_precision="ieee")
            _store(DQ, q_begin + t, dq_stride, t < queries, head * DK, dq, DK, BK)
    else:
        for k_tile in range(0, keys, T):
            key = k_tile + t
            k = _load(K, k_begin + key, k_stride, key < keys, head * DK, DK, BK)
            v = _load(V, k_begin + key, v_stride, key < keys, head * DV, DV, BV)
            dk = tl.zeros([T, BK], tl.float32)
            dv = tl.zeros([T, BV], tl.float32)
            begin = 0
            if CAUSAL:
                begin = k_tile
            for q_tile in range(begin, queries, T):
                query = q_tile + t
                q = _load(Q, q_begin + query, q_stride, query < queries, head * DK, DK, BK)
                g = _load(GRAD, q_begin + query, out_stride, query < queries, head * DV, DV, BV)
                p, ds = _slopes(
                    q, k, v, g, OUT, LSE, seed, q_begin, query, queries, key, keys, k_tile, head,
                    out_stride, rows, scale, slope, gain, CAUSAL, DROPPED, T, DV, BV,
                )  # fmt: skip
                dv += tl.dot(tl.trans(p.to(g.dtype)), g, input_precision="ieee")
                dk += tl.dot(tl.trans(ds.to(q.dtype)), q, input_precision="ieee")
            _store(DK_, k_begin + key, dk_stride, key < keys, head * DK, dk, DK, BK)
            _store(DV_, k_begin + key, dv_stride, key < keys, head * DV, dv, DV, BV)
        for q_tile in range(0, queries, T):
            query = q_tile + t
            q = _load(Q, q_begin + query, q_stride, query < queries, head * DK, DK, BK)
            g = _load(GRAD, q_begin + query, out_stride, query < queries, head * DV, DV, BV)
            dq = tl.zeros([T, BK], tl.float32)
            end = keys
            if CAUSAL:
                end = tl.minimum(keys, q_tile + T)
            for k_tile in range(0, end, T):
                key = k_tile + t
                k = _load(K, k_begin + key, k_stride, key < keys, head * DK, DK, BK)
                v = _load(V, k_begin + key, v_stride, key < keys, head * DV, DV, BV)
                p, ds = _slopes(
                    q, k, v, g, OUT, LSE, seed, q_begin, query, queries, key, keys, k_tile, head,
                    out_stride, rows, scale, slope, gain, CAUSAL, DROPPED, T, DV, BV,
                )  # fmt: skip
                dq += tl.dot(ds.to(k.dtype), k, input_precision="ieee")
            _store(DQ, q_begin + query, dq_stride, query < queries, head * DK, dq, DK, BK)


@triton.jit
def _slopes(
    q, k, v, g, OUT, LSE, seed, q_begin, query, queries, key, keys, k_tile, head,
    out_stride, rows, scale, slope, gain,
    CAUSAL: tl.constexpr, DROPPED: tl.constexpr, T: tl.constexpr, DV: tl.constexpr, BV: tl.constexpr,
):  # fmt: skip
    """The weights of a tile after dropout, and the gradients of its scores, from the forward pass's sums."""
    valid = query < queries
    out = _load(OUT, q_begin + query, out_stride, valid, head * DV, DV, BV)
    lse = tl.load(LSE + head * rows + q_begin + query, mask=valid, other=0.0)
    delta = tl.sum(g.to(tl.float32) * out.to(tl.float32), 1)
    s = _scores(q, k, query, key, keys, scale, CAUSAL)
    p = tl.where(valid[:, None], tl.exp2(s - lse[:, None]), 0.0)
    dp = tl.dot(g, tl.trans(v), input_precision="ieee")
    dropped_p = p
    if DROPPED > 0:
        kept = _kept(seed, q_begin + query, k_tile, head, DROPPED, T)
        dropped_p = tl.where(kept, p * gain, 0.0)
        dp = tl.where(kept, dp * gain, 0.0)
    return dropped_p, p * (dp - delta[:, None]) * slope


def forward(
    x_MX: Tensor,
    memory_SY: Tensor | None,
    queries_at: Tensor,
    keys_at: Tensor,
    sizes: Widths,
    causal: bool,
    p_drop: float,
    seed: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """``model::packed_attention``."""
    q, k, v = sizes.split(x_MX, memory_SY)
    out_MX = x_MX.new_empty(x_MX.shape[0], sizes.heads * sizes.d_v)
    lse_HM = x_MX.new_empty(sizes.heads, x_MX.shape[0], dtype=torch.float32)
    scale, _, gain = _factors(sizes, p_drop)
    _forward[(len(queries_at) - 1, sizes.heads)](
        q, k, v, out_MX, lse_HM, queries_at, keys_at, queries_at if seed is None else seed,
        q.stride(0), k.stride(0), v.stride(0), out_MX.stride(0), x_MX.shape[0], scale, gain,
        **constants(sizes, causal, p_drop), num_warps=warps(sizes)[0],
    )  # fmt: skip
    return out_MX, lse_HM


def backward(
    into: tuple[Tensor, Tensor, Tensor],
    grad_MX: Tensor,
    x_MX: Tensor,
    memory_SY: Tensor | None,
    out_MX: Tensor,
    lse_HM: Tensor,
    queries_at: Tensor,
    keys_at: Tensor,
    sizes: Widths,
    causal: bool,
    p_drop: float,
    seed: Tensor | None,
) -> None:
    """Write the gradients of queries, keys and values ``into`` these views; ``grad_MX`` must be contiguous."""
    q, k, v = sizes.split(x_MX, memory_SY)
    scale, slope, gain = _factors(sizes, p_drop)
    _backward[(len(queries_at) - 1, sizes.heads)](
        q, k, v, out_MX, grad_MX, lse_HM, *into, queries_at, keys_at, queries_at if seed is None else seed,
        q.stride(0), k.stride(0), v.stride(0), out_MX.stride(0), *(x.stride(0) for x in into),
        x_MX.shape[0], scale, slope, gain,
        **constants(sizes, causal, p_drop), num_warps=warps(sizes)[1],
    )  # fmt: skip


def dropped_draws(p_drop: float) -> int:
    """How many of the ``DRAWS`` values drop a weight."""
    return min(round(p_drop * DRAWS), DRAWS - 1)


def _factors(sizes: Widths, p_drop: float) -> tuple[float, float, float]:
    """Of the scores in units of log 2, of their gradients, and of the weights that dropout keeps."""
    slope = 1 / math.sqrt(sizes.d_k)
    return slope / math.log(2), slope, DRAWS / (DRAWS - dropped_draws(p_drop))


def constants(sizes: Widths, causal: bool, p_drop: float) -> dict[str, int | bool]:
    """The compile-time constants. A product needs tiles of at least 16 columns."""
    blocks = [max(16, triton.next_power_of_2(width)) for width in (sizes.d_k, sizes.d_v)]
    return {
        "CAUSAL": causal,
        "DROPPED": dropped_draws(p_drop),
        "T": TILE,
        "DK": sizes.d_k,
        "DV": sizes.d_v,
        "BK": blocks[0],
        "BV": blocks[1],
    }
