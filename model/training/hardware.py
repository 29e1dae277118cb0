"""The memory of a training, and what decides how a CPU rounds."""

from pathlib import Path

import torch

STATUS = Path("/proc/self/status")
CPU_INFO = Path("/proc/cpuinfo")
VENDORS = {"AuthenticAMD": "AMD", "GenuineIntel": "Intel"}


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
