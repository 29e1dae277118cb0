"""Changes of this engine that a benchmark can switch, to see what each gains: ``throughput.py --variant``."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from unittest import mock

from torch import Tensor

from model.network import linear
from model.network.attention import PackedMask
from model.network.widths import Widths


def attend_by_torch(mask: PackedMask, x_MX: Tensor, memory_SY: Tensor | None, widths: Widths, p_drop: float) -> Tensor:
    """``PackedMask.attend`` by torch's attention wherever no weights are dropped."""
    if p_drop:
        return mask.attend_by_operator(x_MX, memory_SY, widths, p_drop)
    return mask.attend_by_torch(x_MX, memory_SY, widths)


@contextmanager
def varlen() -> Iterator[None]:
    """Packed sentences attend by torch's operator, where there is no dropout, however short they are."""
    with mock.patch.object(PackedMask, "attend", attend_by_torch):
        yield


@contextmanager
def relu_apart() -> Iterator[None]:
    """The ReLU is an operation of its own, on a GPU in bfloat16 too."""
    with mock.patch.object(linear, "_fuses_relu", return_value=False):
        yield


VARIANTS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "as-is": nullcontext,
    "varlen": varlen,
    "relu-apart": relu_apart,
}
