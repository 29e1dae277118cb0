"""Configures the precision of matrix products, and strict numerics: the same bits on different CPUs.

docs/reproducibility.md explains strict numerics.
"""

import os
from pathlib import Path

import torch

from .config import STRICT_ENVIRONMENT, Numerics, Training
from .config.keying import require
from .job import JobSettings

CPU_FLAGS = Path("/proc/cpuinfo")


def has_bf16() -> bool:
    """Whether this CPU has bfloat16 products; True on a system without /proc/cpuinfo."""
    try:
        flags = set(CPU_FLAGS.read_text().split())
    except OSError:
        return True
    return not flags.isdisjoint(("avx512_bf16", "amx_bf16", "bf16"))


def configure_precision(name: str, precision: str, device: torch.device) -> None:
    """Make torch multiply float32 matrices in float32, or in TF32 for tf32.

    ``name`` is the field: training.precision or decoding.precision. Raises ValueError if this device does not support
    the precision.
    """
    gpu = device.type == "cuda"
    require(gpu or precision != "tf32", name, precision, "fp32 or bf16 on a CPU (tf32 needs a GPU)")
    slow = "fp32 on this CPU, whose instructions have no bfloat16 (it would take thirty times as long)"
    require(gpu or precision != "bf16" or has_bf16(), name, precision, slow)
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")


def autocast(training: Training, device: torch.device) -> torch.autocast:
    """Return the context for forward passes: bfloat16 products for precision bf16, otherwise unchanged."""
    return torch.autocast(device.type, torch.bfloat16, enabled=training.precision == "bf16")


def configure_numerics(numerics: Numerics, site: JobSettings) -> None:
    """If ``numerics`` is strict, set torch to one thread and no oneDNN; fast changes nothing.

    Raises ValueError if this job cannot compute strictly: on a GPU, with compiled layers, or in an environment that
    selects other kernels.
    """
    if numerics == "fast":
        return
    require(site.torch_device().type == "cpu", "site.device", site.device, "cpu where numerics is strict")
    require(site.compile not in ("always", "update"), "site.compile", site.compile, "never where numerics is strict")
    for name, value in STRICT_ENVIRONMENT.items():
        require(os.environ.get(name) == value, name, os.environ.get(name), f"{value} where numerics is strict")
    capability = torch.backends.cpu.get_cpu_capability()
    require(capability == "DEFAULT", "torch's CPU capability", capability, "DEFAULT where numerics is strict")
    torch.set_num_threads(1)
    torch.backends.mkldnn.set_flags(_enabled=False)  # type: ignore[no-untyped-call]
