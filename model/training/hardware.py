"""What a training costs its machine: memory, power, energy, and the share of a device's peak that it reaches.

Out go numbers by name, for rows of metrics: ``memory_bytes`` of this process, ``gpu_watts`` and ``gpu_kwh`` of the GPUs
of all ranks on this machine. A reading asks the driver (NVML), never the device's queue, so nothing waits for it. What
a machine does not tell is left out. It knows nothing of models.
"""

import ctypes
import os
import resource
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

NVML = "libnvidia-ml.so.1"
JOULES_PER_KWH = 3.6e6
STATUS = Path("/proc/self/status")


class HardwareMonitor:
    """The meters of one process. ``kwh`` goes on from what earlier tries of the same training have used."""

    def __init__(self, device: torch.device, used_kwh: float = 0.0) -> None:
        self.device = device
        self.gpus = GpuEnergyMeter(*local_gpus(device), used_kwh)

    def read(self) -> dict[str, float]:
        """``memory_bytes`` and, where there are GPUs whose driver tells, ``gpu_watts`` and ``gpu_kwh``."""
        return {"memory_bytes": memory_bytes(self.device)} | self.gpus.read()


class GpuEnergyMeter:
    """Power and energy of some GPUs, named by UUID; where one of them does not tell, the number is left out.

    ``library`` is NVML, or whatever has its functions.
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
        """Energy that all tries of the training have used; that of the earlier ones where the driver does not tell."""
        used = sum(now - begun for now, begun in zip(self.millijoules(), self.begun, strict=False))
        return self.used_kwh + used / 1e3 / JOULES_PER_KWH

    def millijoules(self) -> list[int]:
        """What each GPU has used since its driver was loaded."""
        return self.readings("nvmlDeviceGetTotalEnergyConsumption", ctypes.c_ulonglong)

    def readings(self, name: str, kind: type[ctypes.c_uint] | type[ctypes.c_ulonglong]) -> list[int]:
        """A number of each GPU; none at all where one of them does not tell."""
        values = [kind(0) for _ in self.handles]
        try:
            for handle, value in zip(self.handles, values, strict=True):
                self.call(name, handle, ctypes.byref(value))
        except NvmlError:
            return []
        return [value.value for value in values]

    def handle(self, uuid: str) -> ctypes.c_void_p:
        """NVML's handle. Raises NvmlError for a GPU that is divided (MIG): its meter counts the neighbours as well."""
        handle, on, pending = ctypes.c_void_p(), ctypes.c_uint(0), ctypes.c_uint(0)
        self.call("nvmlDeviceGetHandleByUUID", uuid.encode(), ctypes.byref(handle))
        try:
            self.call("nvmlDeviceGetMigMode", handle, ctypes.byref(on), ctypes.byref(pending))
        except NvmlError:  # a GPU that cannot be divided
            return handle
        if on.value:
            raise NvmlError(f"{uuid} is divided")
        return handle

    def call(self, name: str, *arguments: Any) -> None:
        """Call the library. Raises NvmlError where it has no such function or answers with an error."""
        try:
            status = getattr(self.library, name)(*arguments)
        except AttributeError as error:
            raise NvmlError(name) from error
        if status:
            raise NvmlError(f"{name} answers {status}")


class NvmlError(Exception):
    """The driver does not tell."""


def local_gpus(device: torch.device) -> tuple[Any, list[str]]:
    """NVML, and the UUIDs of the GPUs that the ranks on this machine compute on; no UUID where there is neither.

    Torch's own numbering already obeys CUDA_VISIBLE_DEVICES; NVML's does not, so GPUs are named by UUID.
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
    """Most GPU memory that tensors held so far; on a CPU what the process holds now, or the most it held."""
    if device.type == "cuda":
        return float(torch.cuda.max_memory_allocated(device))
    try:
        [line] = [line for line in STATUS.read_text().splitlines() if line.startswith("VmRSS:")]
        return 1024.0 * int(line.split()[1])
    except (OSError, ValueError):
        return 1024.0 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def device_name(device: torch.device) -> str:
    """What the device calls itself."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def mfu(flops_per_second: float, device: str, peaks: Mapping[str, float]) -> dict[str, float]:
    """``mfu``: the share of a device's peak that the arithmetic of the model makes up, given that of one rank.

    ``peaks`` are operations a second by what a device's name holds; nothing for a device that is not among them.
    """
    known = [peak for name, peak in peaks.items() if name in device]
    return {"mfu": flops_per_second / known[0]} if known else {}
