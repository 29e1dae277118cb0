"""Changes of this engine that a benchmark can switch, to see what each gains: ``throughput.py --variant``."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from unittest import mock

import torch
from torch import Tensor

from model.network import linear
from model.network.attention import PackedMask
from model.network.packed_attention import packed_attention
from model.network.widths import Widths


def attend_by_operator(
    mask: PackedMask, x_MX: Tensor, memory_SY: Tensor | None, widths: Widths, p_drop: float
) -> Tensor:
    """``PackedMask.attend`` by ``repro::packed_attention``, with dropout or without."""
    seed = torch.randint(1 << 62, (), device=x_MX.device) if p_drop else None
    q, k = mask.queries, mask.keys
    at = (q.cu_seqlens, k.cu_seqlens, q.max_seqlen, k.max_seqlen)
    out: Tensor = packed_attention(x_MX, memory_SY, *at, list(widths), mask.causal, p_drop, seed)[0]
    return out


@contextmanager
def operator() -> Iterator[None]:
    """Packed sentences attend by ``repro::packed_attention`` where there is no dropout too."""
    with mock.patch.object(PackedMask, "attend", attend_by_operator):
        yield


@contextmanager
def relu_apart() -> Iterator[None]:
    """The ReLU is an operation of its own, on a GPU in bfloat16 too."""
    with mock.patch.object(linear, "_fuses_relu", return_value=False):
        yield


VARIANTS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "as-is": nullcontext,
    "operator": operator,
    "relu-apart": relu_apart,
}
