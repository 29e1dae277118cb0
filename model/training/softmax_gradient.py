"""Computes the gradient of the loss with respect to the logits in the fastest way for each device.

A CPU computes it for a few rows at a time, which stay in its cache. torch.compile gets operations that it can fuse into
one pass. A GPU without compilation changes the softmax in place. All three give the same values up to rounding.

Shape suffixes: C positions, R positions that are in the cache together, N vocabulary.
"""

from collections.abc import Callable

import torch
from torch import Tensor

CACHED_LOGITS = 1 << 17
"""Number of logits that a CPU processes at a time, so that they stay in the cache for all passes of the softmax."""

SoftmaxGradient = Callable[[Tensor, Tensor, float], tuple[Tensor, Tensor, Tensor]]


def softmax_gradient(logits_CN: Tensor, labels_C1: Tensor, smoothing: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return softmax(logits) - (1 - smoothing) * onehot(label) (C, N), log-sum-exp and the label's logit (C, 1)."""
    if logits_CN.device.type == "cpu" and not torch.compiler.is_compiling():
        return _softmax_gradient_by_rows(logits_CN, labels_C1, smoothing)
    wide = torch.promote_types(logits_CN.dtype, torch.float32)
    p_CN = logits_CN.softmax(-1, dtype=wide)
    # The likeliest piece gives the log-sum-exp: its p cannot underflow to 0, but the label's p can.
    z_C1 = logits_CN.amax(-1, keepdim=True).to(wide) - p_CN.amax(-1, keepdim=True).log()
    if torch.compiler.is_compiling():
        places_N = torch.arange(logits_CN.shape[1], device=logits_CN.device)
        grad_logits_CN = torch.where(places_N == labels_C1, p_CN + (smoothing - 1), p_CN).to(logits_CN.dtype)
    else:
        grad_logits_CN = p_CN.scatter_add_(1, labels_C1, torch.full_like(z_C1, smoothing - 1)).to(logits_CN.dtype)
    return grad_logits_CN, z_C1, logits_CN.gather(1, labels_C1)


def _softmax_gradient_by_rows(logits_CN: Tensor, labels_C1: Tensor, smoothing: float) -> tuple[Tensor, Tensor, Tensor]:
    """Compute ``softmax_gradient`` for the number of rows that fit into a CPU's cache at a time."""
    wide = torch.promote_types(logits_CN.dtype, torch.float32)
    grad_logits_CN = torch.empty_like(logits_CN)
    p_label_C1 = torch.empty_like(labels_C1, dtype=wide)
    rows = max(1, CACHED_LOGITS // logits_CN.shape[1])
    parts = (torch.split(x, rows) for x in (logits_CN, labels_C1, grad_logits_CN, p_label_C1))
    for logits_RN, labels_R1, grad_logits_RN, p_label_R1 in zip(*parts, strict=True):
        p_RN = logits_RN.softmax(-1, dtype=wide)
        torch.gather(p_RN, 1, labels_R1, out=p_label_R1)
        grad_logits_RN.copy_(p_RN.scatter_(1, labels_R1, p_label_R1 + (smoothing - 1)))
    label_logits_C1 = logits_CN.gather(1, labels_C1)
    z_C1 = label_logits_C1 - p_label_C1.log()
    rare = (p_label_C1 < torch.finfo(wide).tiny).flatten()  # such a small p is too imprecise for its log
    if rare.any():
        z_C1[rare] = logits_CN[rare].logsumexp(-1, keepdim=True).to(wide)
    return grad_logits_CN, z_C1, label_logits_C1
