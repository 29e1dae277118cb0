"""torch's attention over packed sentences as one operator, ``model::varlen_attention``, for long sentences on a GPU.

Its backward pass divides the keys of a sentence among blocks of threads, which add up the gradients of the queries by
atomic additions: with three or more blocks their order, and so the sum's last bits, change from run to run. This module
makes the backward pass add in a fixed order, so that a resumed training equals the uninterrupted one. torch's only
setting for that covers all operators and forbids some that a training needs, so it is on during this operator alone.

Shape suffixes are those of ``model.network.attention``. Offsets (N + 1) are those of ``SequenceOffsets``.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from .packed_attention import OPERATORS


@torch.library.custom_op(f"{OPERATORS}::varlen_attention", mutates_args=())
def varlen_attention(
    q_MHK: Tensor,
    k_MHK: Tensor,
    v_MHV: Tensor,
    queries_at: Tensor,
    keys_at: Tensor,
    longest_query: int,
    longest_key: int,
    causal: bool,
) -> tuple[Tensor, Tensor]:
    """Scaled dot-product attention (§3.2.1), (M, H, V), and the log-sum-exp of each row (H, M)."""
    from torch.nn.attention.varlen import AuxRequest, varlen_attn  # imported here because only a GPU needs it

    lengths = (queries_at, keys_at, longest_query, longest_key)
    out = varlen_attn(q_MHK, k_MHK, v_MHV, *lengths, window_size=_window(causal), return_aux=AuxRequest(lse=True))
    assert isinstance(out, tuple)
    return out


@varlen_attention.register_fake
def _(q_MHK: Tensor, *_others: Any) -> tuple[Tensor, Tensor]:
    return torch.empty_like(q_MHK), q_MHK.new_empty(q_MHK.shape[1], q_MHK.shape[0], dtype=torch.float32)


@torch.library.custom_op(f"{OPERATORS}::varlen_attention_backward", mutates_args=())
def varlen_attention_backward(
    grad_MHV: Tensor,
    q_MHK: Tensor,
    k_MHK: Tensor,
    v_MHV: Tensor,
    out_MHV: Tensor,
    lse_HM: Tensor,
    queries_at: Tensor,
    keys_at: Tensor,
    longest_query: int,
    longest_key: int,
    causal: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of queries, keys and values."""
    left, right = _window(causal)
    state = torch.zeros(2, dtype=torch.uint64, device=q_MHK.device)  # of the random numbers that dropout would draw
    with _in_one_order():
        grads: tuple[Tensor, Tensor, Tensor] = torch.ops.aten._flash_attention_backward(
            grad_MHV, q_MHK, k_MHK, v_MHV, out_MHV, lse_HM, queries_at, keys_at, longest_query, longest_key,
            0.0, causal, state, state.new_empty(0), window_size_left=left, window_size_right=right,
        )  # fmt: skip
    return grads


@varlen_attention_backward.register_fake
def _(_: Tensor, *tensors: Any) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = (torch.empty_like(x) for x in tensors[:3])
    return q, k, v


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, longest_query, longest_key, causal = inputs
    ctx.save_for_backward(*tensors, *output)
    ctx.settings = (longest_query, longest_key, causal)
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, grad_MHV: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
    q_MHK, k_MHK, v_MHV, queries_at, keys_at, out_MHV, lse_HM = ctx.saved_tensors
    if grad_MHV is None:
        return (None,) * 8
    grads = varlen_attention_backward(
        grad_MHV, q_MHK, k_MHK, v_MHV, out_MHV, lse_HM, queries_at, keys_at, *ctx.settings
    )
    return *grads, *[None] * 5


varlen_attention.register_autograd(_backward, setup_context=_save)


def _window(causal: bool) -> tuple[int, int]:
    """Positions that a query sees on either side: -1 is unlimited."""
    return -1, 0 if causal else -1


@contextmanager
def _in_one_order() -> Iterator[None]:
    """Within, torch's operators that can add in one order do so."""
    before, only_warns = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    memory: Any = torch.utils.deterministic
    filled = memory.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    memory.fill_uninitialized_memory = False  # outputs are written whole
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=only_warns)
        memory.fill_uninitialized_memory = filled
