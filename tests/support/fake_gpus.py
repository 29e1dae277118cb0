"""A fake library of NVIDIA's driver (NVML) with two GPUs."""

import ctypes
from collections.abc import Collection
from typing import Any

NOT_SUPPORTED = 3


class FakeGpus:
    """Two GPUs, 1 and 2, at 100 W and 300 W, and energies that a test sets.

    The library lacks the functions ``missing``; for the second GPU those in ``silent`` return an error.
    """

    def __init__(self, *missing: str, divided: bool = False, silent: Collection[str] = ()) -> None:
        self.missing, self.divided, self.silent = missing, divided, silent
        self.millijoules = {1: 5_000_000, 2: 9_000_000_000_000}

    def __getattr__(self, name: str) -> Any:
        values = {
            "nvmlDeviceGetPowerUsage": lambda gpu: gpu * 200_000 - 100_000,
            "nvmlDeviceGetTotalEnergyConsumption": lambda gpu: self.millijoules[gpu],
        }
        functions = {
            "nvmlInit_v2": lambda: 0,
            "nvmlDeviceGetHandleByUUID": find,
            "nvmlDeviceGetMigMode": self.partition,
            **{name: lambda gpu, out, read=read: put(out, read(gpu.value)) for name, read in values.items()},
        }
        if name in self.missing or name not in functions:
            raise AttributeError(name)
        function = functions[name]
        if name not in self.silent:
            return function
        return lambda gpu, *out: NOT_SUPPORTED if gpu.value == 2 else function(gpu, *out)

    def partition(self, _gpu: ctypes.c_void_p, on: Any, _pending: Any) -> int:
        return put(on, 1) if self.divided else NOT_SUPPORTED


def put(out: Any, value: int) -> int:
    out._obj.value = value
    return 0


def find(uuid: bytes, out: Any) -> int:
    numbers = {b"GPU-a": 1, b"GPU-b": 2}
    return put(out, numbers[uuid]) if uuid in numbers else NOT_SUPPORTED
