"""Strict numerics: the same bits on different CPUs (docs/reproducibility.md)."""

import os

import torch

from .config.keying import require
from .config.strict import STRICT_ENVIRONMENT, Numerics
from .job import JobSettings


def configure_numerics(numerics: Numerics, site: JobSettings) -> None:
    """Compute in one thread, without oneDNN, from here on, if ``numerics`` is strict; fast changes nothing.

    Raises ValueError where this job cannot compute strictly: on a GPU, with compiled layers, or in an environment that
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
