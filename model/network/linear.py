"""Dense layers that use the faster of two libraries for matrix products.

On a CPU torch multiplies float32 matrices with MKL, which uses only four fifths of the AVX-512 units of some
processors. oneDNN, which torch ships for its compiler, uses all of them: it computes the forward product and the
gradient of the input. Torch computes the rest, such as the gradient of the weight: here MKL is as fast.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def _find_onednn_linear() -> Any:
    """Return oneDNN's x W^T + b; None if this torch does not have it or the processor does not benefit."""
    try:
        operator = torch.ops.mkldnn._linear_pointwise.default
    except (AttributeError, RuntimeError):
        return None
    return operator if torch.backends.cpu.get_cpu_capability() == "AVX512" else None


ONEDNN_LINEAR = _find_onednn_linear()
MIN_WEIGHTS = 1 << 16
"""With fewer weights, oneDNN's preparation for every new shape costs more time than oneDNN saves."""


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute x W^T + b. The library depends on machine and shape alone, so a resumed training rounds identically."""
    if _uses_onednn(x, weight) and not torch.compiler.is_compiling():
        return _OneDNNLinear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    return F.linear(x, weight, bias)


def without_gradient_in_bfloat16(weight: Tensor, bias: Tensor | None = None) -> Callable[[Tensor], Tensor]:
    """Return the function ``without_gradient`` with weights, inputs and results rounded to bfloat16."""
    narrow = weight.detach().bfloat16()
    added = None if bias is None else bias.detach().bfloat16()
    return lambda x_RD: F.linear(x_RD.bfloat16(), narrow, added)


def wide_product(weight: Tensor, bias: Tensor | None = None) -> Callable[[Tensor], Tensor]:
    """Return x W^T + b for rows (R, D), with weights and inputs rounded to bfloat16 and results in float32."""
    narrow = weight.detach().bfloat16()
    if weight.device.type == "cuda":
        added = 0.0 if bias is None else bias.detach()
        return lambda x_RD: torch.mm(x_RD.bfloat16(), narrow.T, out_dtype=torch.float32) + added
    rounded = narrow.float()
    return lambda x_RD: F.linear(x_RD.bfloat16().float(), rounded, bias)


def without_gradient(weight: Tensor, bias: Tensor | None = None) -> Callable[[Tensor], Tensor]:
    """Return the function ``linear`` of these weights for rows (R, D), without a gradient. The weights must not change.

    The library is chosen once, here. oneDNN gets a copy of the weights in its own layout. Without the copy it would
    rearrange them in each call, and with few rows this takes most of the time. The results are the same. A single row
    uses another kernel, which rounds differently with another layout, so it gets the original weights.
    """
    if not _uses_onednn(weight, weight):
        return lambda x_RD: F.linear(x_RD, weight, bias)
    arranged = torch.ops.mkldnn._reorder_linear_weight(weight.detach())

    def product(x_RD: Tensor) -> Tensor:
        return ONEDNN_LINEAR(x_RD, arranged if len(x_RD) > 1 else weight, bias, "none", [], "")

    return product


def _uses_onednn(x: Tensor, weight: Tensor) -> bool:
    exact = x.device.type == "cpu" and x.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
    return bool(ONEDNN_LINEAR) and exact and weight.numel() >= MIN_WEIGHTS


class Linear(nn.Linear):
    """``nn.Linear`` that calls ``linear``."""

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)


class _OneDNNLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Any:
        ctx.save_for_backward(x, weight)
        return ONEDNN_LINEAR(x, weight, bias, "none", [], "")

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        x, weight = ctx.saved_tensors
        rows = grad_output.flatten(0, -2)
        inputs = x.flatten(0, -2)
        bias = rows.sum(0) if ctx.needs_input_grad[2] else None
        return ONEDNN_LINEAR(grad_output, weight.T, None, "none", [], ""), rows.T @ inputs, bias
