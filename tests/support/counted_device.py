"""A device that the CPU stands in for, and that counts the copies between it and the host."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

DEVICE = torch.device("meta")
"""Within ``CountedDevice`` its tensors have values. Other devices are refused by a torch that was built without."""
COPIES = ("aten._to_copy", "aten.copy_")
WAITS = ("aten._local_scalar_dense", "aten.is_nonzero", "aten.nonzero", "aten.masked_select", "aten.equal")
"""Operations whose result, or its shape, the host waits for."""


class DeviceTensor(Tensor):
    """A tensor of ``DEVICE``; ``here`` is a tensor of the CPU with its values."""

    here: Tensor

    @staticmethod
    def __new__(cls, here: Tensor) -> "DeviceTensor":
        made: DeviceTensor = Tensor._make_wrapper_subclass(
            cls, here.shape, here.stride(), here.storage_offset(), dtype=here.dtype, device=DEVICE
        )
        made.here = here
        return made

    @classmethod
    def __torch_dispatch__(cls, function: Callable[..., Any], *_: Any) -> Any:
        raise AssertionError(f"{function} outside of CountedDevice")


class CountedDevice(TorchDispatchMode):
    """Within this context operations on tensors of ``DEVICE`` run; on tensors of both devices only copies do.

    ``to_device`` and ``to_host`` are the bytes of each copy. What the host waits for is a copy to it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.to_device: list[int] = []
        self.to_host: list[int] = []

    def clear(self) -> None:
        self.to_device.clear()
        self.to_host.clear()

    def __torch_dispatch__(
        self, function: Any, _: Any, arguments: Sequence[Any] = (), named: dict[str, Any] | None = None
    ) -> Any:
        with self:  # in inference mode operations come before torch has split them
            if (found := function.decompose(*arguments, **(named or {}))) is not NotImplemented:
                return found
        given, name = dict(named or {}), str(function).rpartition(".")[0]
        tensors = [x for x in tree_leaves((arguments, given)) if isinstance(x, Tensor)]
        on_device = [x for x in tensors if isinstance(x, DeviceTensor)]
        there = bool(on_device)
        if given.get("device") is not None:
            there, given["device"] = torch.device(given["device"]).type == DEVICE.type, torch.device("cpu")
        if name in COPIES:
            there, source = isinstance(tensors[0], DeviceTensor) if name == "aten.copy_" else there, tensors[-1]
            if isinstance(source, DeviceTensor) != there:
                (self.to_device if there else self.to_host).append(source.nbytes)
        elif on_device:
            assert all(isinstance(x, DeviceTensor) or not x.dim() for x in tensors), f"{name} of both devices' tensors"
            if name in WAITS or (name == "aten.index" and any(x.dtype == torch.bool for x in on_device[1:])):
                self.to_host.append(on_device[0].nbytes)
        made = function(*tree_map(values, tuple(arguments)), **tree_map(values, given))
        known = {id(x.here): x for x in on_device}  # of operations in place
        return tree_map(lambda x: on(x, known), made) if there else made


def values(x: Any) -> Any:
    return x.here if isinstance(x, DeviceTensor) else x


def on(x: Any, known: dict[int, DeviceTensor]) -> Any:
    return known[id(x)] if id(x) in known else DeviceTensor(x) if isinstance(x, Tensor) else x
