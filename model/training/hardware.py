"""Metrics of memory, power, energy and utilisation of a training.

``memory_bytes`` measures this process, ``gpu_watts`` and ``gpu_kwh`` the GPUs of all ranks on this machine. Power and
energy are read from the driver (NVML), not through the device's queue, so no update waits for them. A metric that the
machine does not report is omitted.
"""

import ctypes
import os
import resource
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

NVML = "libnvidia-ml.so.1"
JOULES_PER_KWH = 3.6e6
STATUS = Path("/proc/self/status")


class HardwareMonitor:
    """Reads the metrics of one process; energy includes that of earlier attempts of the training."""

    def __init__(self, device: torch.device, used_kwh: float = 0.0) -> None:
        self.device = device
        self.gpus = GpuEnergyMeter(*local_gpus(device), used_kwh)

    def read(self) -> dict[str, float]:
        """``memory_bytes`` and, where the driver reports them, ``gpu_watts`` and ``gpu_kwh``."""
        return {"memory_bytes": memory_bytes(self.device)} | self.gpus.read()


class GpuEnergyMeter:
    """Reads power and energy of the GPUs with these UUIDs; a metric that one of them does not report is omitted.

    ``library`` is NVML or an object with the same functions.
    """

    def __init__(self, library: Any, uuids: Sequence[str], used_kwh: float = 0.0) -> None:
        self.library, self.used_kwh = library, used_kwh
        self.handles: list[ctypes.c_void_p] = []
        try:
            if uuids:
                self.call("nvmlInit_v2")
                self.handles = [self.handle(uuid) for uuid in uuids]
        except NvmlError:
            pass
        self.begun = self.millijoules()

    def read(self) -> dict[str, float]:
        """``gpu_watts`` now, summed over the GPUs, and ``gpu_kwh`` since the training began."""
        values = {}
        if milliwatts := self.readings("nvmlDeviceGetPowerUsage", ctypes.c_uint):
            values["gpu_watts"] = sum(milliwatts) / 1e3
        if self.begun:
            values["gpu_kwh"] = self.kwh()
        return values

    def kwh(self) -> float:
        """Energy of all attempts of the training; only that of earlier attempts if the driver reports none."""
        used = sum(now - begun for now, begun in zip(self.millijoules(), self.begun, strict=False))
        return self.used_kwh + used / 1e3 / JOULES_PER_KWH

    def millijoules(self) -> list[int]:
        """Energy of each GPU since its driver was loaded, in millijoules."""
        return self.readings("nvmlDeviceGetTotalEnergyConsumption", ctypes.c_ulonglong)

    def readings(self, name: str, kind: type[ctypes.c_uint] | type[ctypes.c_ulonglong]) -> list[int]:
        """One number per GPU; empty if one of them reports none."""
        values = [kind(0) for _ in self.handles]
        try:
            for handle, value in zip(self.handles, values, strict=True):
                self.call(name, handle, ctypes.byref(value))
        except NvmlError:
            return []
        return [value.value for value in values]

    def handle(self, uuid: str) -> ctypes.c_void_p:
        """The NVML handle of a GPU. Raises NvmlError for a partitioned GPU (MIG), whose meter covers all partitions."""
        handle, on, pending = ctypes.c_void_p(), ctypes.c_uint(0), ctypes.c_uint(0)
        self.call("nvmlDeviceGetHandleByUUID", uuid.encode(), ctypes.byref(handle))
        try:
            self.call("nvmlDeviceGetMigMode", handle, ctypes.byref(on), ctypes.byref(pending))
        except NvmlError:  # a GPU that cannot be partitioned
            return handle
        if on.value:
            raise NvmlError(f"{uuid} is partitioned (MIG)")
        return handle

    def call(self, name: str, *arguments: Any) -> None:
        """Call an NVML function. Raises NvmlError if it does not exist or returns an error."""
        try:
            status = getattr(self.library, name)(*arguments)
        except AttributeError as error:
            raise NvmlError(name) from error
        if status:
            raise NvmlError(f"{name} answers {status}")


class NvmlError(Exception):
    """The driver does not report a value."""


def local_gpus(device: torch.device) -> tuple[Any, list[str]]:
    """NVML and the UUIDs of the GPUs of all ranks on this machine; no UUID without a GPU or without NVML.

    Torch's device numbers respect CUDA_VISIBLE_DEVICES but NVML's do not, so GPUs are identified by UUID.
    """
    if device.type != "cuda":
        return object(), []
    try:
        library = ctypes.CDLL(NVML)
    except OSError:
        return object(), []
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    numbers = range(ranks) if ranks > 1 else [device.index or 0]
    return library, [f"GPU-{torch.cuda.get_device_properties(number).uuid}" for number in numbers]


def memory_bytes(device: torch.device) -> float:
    """Peak memory of tensors on a GPU; on a CPU the resident memory of the process, or its peak."""
    if device.type == "cuda":
        return float(torch.cuda.max_memory_allocated(device))
    try:
        [line] = [line for line in STATUS.read_text().splitlines() if line.startswith("VmRSS:")]
        return 1024.0 * int(line.split()[1])
    except (OSError, ValueError):
        return 1024.0 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def device_name(device: torch.device) -> str:
    """The GPU's name, or the device type."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def cpu_kernels() -> str:
    """On what the rounding of a CPU's results depends: ``AVX512, 2 threads``."""
    return f"{torch.backends.cpu.get_cpu_capability()}, {torch.get_num_threads()} threads"
