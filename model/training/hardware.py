"""Memory, power and energy of a training, and what decides how a CPU rounds.

Power and energy are read from the GPUs' driver (NVML), not through the device's queue, so no update waits for them. The
driver's library is there wherever a GPU is, and needs no package.
"""

import ctypes
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from ..metric_names import GPU_KWH, GPU_WATTS

NVML = "libnvidia-ml.so.1"
MILLIJOULES_PER_KWH = 3.6e9
STATUS = Path("/proc/self/status")
CPU_INFO = Path("/proc/cpuinfo")
VENDORS = {"AuthenticAMD": "AMD", "GenuineIntel": "Intel"}


class GpuMeter:
    """Reads power and energy of GPUs; a metric that one of them does not report is omitted.

    A partitioned GPU (MIG) reports none, since its meter covers all parts.
    """

    def __init__(self, uuids: Sequence[str], used_kwh: float = 0.0, library: Any = None) -> None:
        """``used_kwh`` is the energy of earlier attempts of the training; ``library`` is NVML, or None."""
        self.library = library
        self.used_kwh = used_kwh
        self.handles = self._handles(uuids)
        self.first_millijoules = self._millijoules()

    def read(self) -> dict[str, float]:
        """``gpu_watts`` now, summed over the GPUs, and ``gpu_kwh`` since the training began."""
        values = {}
        if milliwatts := self._numbers("nvmlDeviceGetPowerUsage", ctypes.c_uint):
            values[GPU_WATTS] = sum(milliwatts) / 1e3
        if self.measures_energy:
            values[GPU_KWH] = self.kwh()
        return values

    @property
    def measures_energy(self) -> bool:
        return bool(self.first_millijoules)

    def kwh(self) -> float:
        """Energy of all attempts of the training; only that of earlier attempts if the driver reports none."""
        millijoules = self._millijoules()
        used = sum(millijoules) - sum(self.first_millijoules) if millijoules else 0
        return self.used_kwh + used / MILLIJOULES_PER_KWH

    def _millijoules(self) -> list[int]:
        """Energy of each GPU since its driver was loaded."""
        return self._numbers("nvmlDeviceGetTotalEnergyConsumption", ctypes.c_ulonglong)

    def _handles(self, uuids: Sequence[str]) -> list[ctypes.c_void_p]:
        """NVML's handles of the GPUs; none if it does not know one of them, or one is partitioned."""
        if not self._call("nvmlInit_v2"):
            return []
        handles = [ctypes.c_void_p() for _ in uuids]
        partitioned = ctypes.c_uint(0)
        pending = ctypes.c_uint(0)
        for uuid, handle in zip(uuids, handles, strict=True):
            if not self._call("nvmlDeviceGetHandleByUUID", uuid.encode(), ctypes.byref(handle)):
                return []
            self._call("nvmlDeviceGetMigMode", handle, ctypes.byref(partitioned), ctypes.byref(pending))
            if partitioned.value:
                return []
        return handles

    def _numbers(self, function: str, kind: type[ctypes.c_uint] | type[ctypes.c_ulonglong]) -> list[int]:
        """A reading of each GPU; none if one of them gives none."""
        values = [kind(0) for _ in self.handles]
        calls = zip(self.handles, values, strict=True)
        known = all(self._call(function, handle, ctypes.byref(value)) for handle, value in calls)
        return [value.value for value in values] if known else []

    def _call(self, name: str, *arguments: Any) -> bool:
        """Call a function of NVML; False if the library lacks it or it returns an error."""
        function = getattr(self.library, name, None)
        return function is not None and function(*arguments) == 0


def gpu_meter(device: torch.device, used_kwh: float) -> GpuMeter:
    """The meter of the GPUs of all ranks on this machine; it has nothing to read without a GPU.

    Torch's device numbers respect CUDA_VISIBLE_DEVICES but the driver's do not, so GPUs are identified by UUID.
    """
    if device.type != "cuda":
        return GpuMeter([], used_kwh)
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    numbers = range(ranks) if ranks > 1 else [device.index or 0]
    uuids = [f"GPU-{torch.cuda.get_device_properties(number).uuid}" for number in numbers]
    try:
        library = ctypes.CDLL(NVML)
    except OSError:  # a container may have the GPU's compute libraries alone
        library = None
    return GpuMeter(uuids, used_kwh, library)


def memory_bytes(device: torch.device) -> float:
    """Peak memory of tensors on a GPU, on MPS what its driver holds now, on a CPU this process's resident memory."""
    if device.type == "cuda":
        return float(torch.cuda.max_memory_allocated(device))
    if device.type == "mps":
        return float(torch.mps.driver_allocated_memory())
    [line] = [line for line in STATUS.read_text().splitlines() if line.startswith("VmRSS:")]
    return 1024.0 * int(line.split()[1])


def device_name(device: torch.device) -> str:
    """The GPU's name, or the device type."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def cpu_kernels() -> str:
    """What decides how a CPU's results are rounded: ``AVX512 AMX Intel, 2 threads``.

    torch chooses its own kernels by vector instructions; its libraries (MKL, oneDNN) also by matrix instructions and
    the processor's maker.
    """
    names = [torch.backends.cpu.get_cpu_capability()]
    if torch.cpu._is_amx_tile_supported():
        names.append("AMX")
    return f"{' '.join([*names, cpu_vendor()]).strip()}, {torch.get_num_threads()} threads"


def cpu_vendor() -> str:
    """The maker of this machine's processor as the kernel names it (``AMD``, ``Intel``); "" where it does not."""
    try:
        lines = CPU_INFO.read_text().splitlines()
    except OSError:
        return ""
    vendor = next((line.partition(":")[2].strip() for line in lines if line.startswith("vendor_id")), "")
    return VENDORS.get(vendor, vendor)
