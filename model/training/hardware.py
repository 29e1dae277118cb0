"""Reads the memory of a training, and the CPU properties that decide how it rounds."""

from pathlib import Path

import torch

STATUS = Path("/proc/self/status")
CPU_INFO = Path("/proc/cpuinfo")
VENDORS = {"AuthenticAMD": "AMD", "GenuineIntel": "Intel"}


def memory_bytes(device: torch.device) -> float:
    """Return memory use: on a GPU the peak of tensors, on a CPU this process's resident memory."""
    if device.type == "cuda":
        return float(torch.cuda.max_memory_allocated(device))
    [line] = [line for line in STATUS.read_text().splitlines() if line.startswith("VmRSS:")]
    return 1024.0 * int(line.split()[1])


def cpu_kernels() -> str:
    """Return the properties that decide how a CPU rounds: ``AVX512 AMX Intel, 2 threads``.

    torch's kernels depend on vector instructions; those of MKL and oneDNN also on matrix instructions and the maker of
    the processor.
    """
    names = [torch.backends.cpu.get_cpu_capability()]
    if torch.cpu._is_amx_tile_supported():
        names.append("AMX")
    return f"{' '.join([*names, cpu_vendor()]).strip()}, {torch.get_num_threads()} threads"


def cpu_vendor() -> str:
    """Return the maker of this machine's processor (``AMD``, ``Intel``); "" if the kernel does not name it."""
    try:
        lines = CPU_INFO.read_text().splitlines()
    except OSError:
        return ""
    vendor = next((line.partition(":")[2].strip() for line in lines if line.startswith("vendor_id")), "")
    return VENDORS.get(vendor, vendor)
