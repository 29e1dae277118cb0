"""Metrics of memory, power, energy and utilisation of a training.

``memory_bytes`` measures this process, ``gpu_watts`` and ``gpu_kwh`` the GPUs of all ranks on this machine. Power and
energy are read from the driver (NVML), not through the device's queue, so no update waits for them. A metric that the
machine does not report is omitted.
"""

import os
import resource
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch

from ..metric_names import GPU_KWH, GPU_WATTS, MEMORY_BYTES
from .gpu_driver import Gpu, gpu_driver

JOULES_PER_KWH = 3.6e6
STATUS = Path("/proc/self/status")
CPU_INFO = Path("/proc/cpuinfo")
VENDORS = {"AuthenticAMD": "AMD", "GenuineIntel": "Intel"}


class HardwareMonitor:
    """Reads the metrics of one process; energy includes that of earlier attempts of the training."""

    def __init__(self, device: torch.device, used_kwh: float = 0.0) -> None:
        self.device = device
        self.gpus = GpuEnergyMeter(local_gpus(device), used_kwh)

    def read(self) -> dict[str, float]:
        """``memory_bytes`` and, where the driver reports them, ``gpu_watts`` and ``gpu_kwh``."""
        return {MEMORY_BYTES: memory_bytes(self.device)} | self.gpus.read()


class GpuEnergyMeter:
    """Reads power and energy of GPUs; a metric that one of them does not report is omitted.

    A partitioned GPU (MIG) reports none, since its meter covers all parts. An unknown GPU is None.
    """

    def __init__(self, gpus: Sequence[Gpu | None], used_kwh: float = 0.0) -> None:
        known = [gpu for gpu in gpus if gpu and not gpu.is_partitioned]
        self.gpus = known if len(known) == len(gpus) else []
        self.used_kwh = used_kwh
        self.begun = self.millijoules()

    def read(self) -> dict[str, float]:
        """``gpu_watts`` now, summed over the GPUs, and ``gpu_kwh`` since the training began."""
        values = {}
        if milliwatts := _all(gpu.milliwatts for gpu in self.gpus):
            values[GPU_WATTS] = sum(milliwatts) / 1e3
        if self.begun:
            values[GPU_KWH] = self.kwh()
        return values

    def kwh(self) -> float:
        """Energy of all attempts of the training; only that of earlier attempts if the driver reports none."""
        used = sum(now - begun for now, begun in zip(self.millijoules(), self.begun, strict=False))
        return self.used_kwh + used / 1e3 / JOULES_PER_KWH

    def millijoules(self) -> list[int]:
        """Energy of each GPU since its driver was loaded; empty if one of them reports none."""
        return _all(gpu.millijoules for gpu in self.gpus)


def _all(readings: Iterable[int | None]) -> list[int]:
    values = [*readings]
    known = [value for value in values if value is not None]
    return known if len(known) == len(values) else []


def local_gpus(device: torch.device) -> list[Gpu | None]:
    """The GPUs of all ranks on this machine; none without a GPU. Those that the driver does not know are None.

    Torch's device numbers respect CUDA_VISIBLE_DEVICES but the driver's do not, so GPUs are identified by UUID.
    """
    if device.type != "cuda":
        return []
    driver = gpu_driver()
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    numbers = range(ranks) if ranks > 1 else [device.index or 0]
    return [driver.by_uuid(f"GPU-{torch.cuda.get_device_properties(number).uuid}") for number in numbers]


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
    found = next((line.partition(":")[2].strip() for line in lines if line.startswith("vendor_id")), "")
    return VENDORS.get(found, found)
