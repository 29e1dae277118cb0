"""A training or translation as on another CPU: ``python -m on_other_cpu job.json``.

MKL computes with the instructions that MKL_ENABLE_INSTRUCTIONS names, but only on a processor that calls itself
Intel's. This module makes MKL believe so on every x86 processor, by overwriting the function that answers.
"""

import ctypes
import mmap
from pathlib import Path

import torch

from model import train, translate
from model.job import run_job

RETURN_1 = b"\xb8\x01\x00\x00\x00\xc3"
"""x86: mov eax, 1; ret."""


def claim_intel() -> None:
    """Make MKL take this processor for one of Intel's; must run before MKL's first use."""
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
    for name in ("mkl_serv_intel_cpu_true", "mkl_serv_intel_cpu"):
        address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
        assert address
        page = address - address % mmap.PAGESIZE
        access = mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
        assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(page), ctypes.c_size_t(2 * mmap.PAGESIZE), access) == 0
        ctypes.memmove(address, RETURN_1, len(RETURN_1))


if __name__ == "__main__":
    claim_intel()
    run_job(lambda job: train.work(job) if "training" in job.config else translate.work(job))
