"""The choice of kernels (docs/reproducibility.md)."""

from typing import Literal

Numerics = Literal["fast", "strict"]
"""fast: the kernels that suit the machine; strict: the same bits on different CPUs, but several times slower."""
STRICT_ENVIRONMENT = {
    "ATEN_CPU_CAPABILITY": "default",
    "MKL_CBWR": "COMPATIBLE",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}
"""The environment variables that strict numerics needs (docs/reproducibility.md).

They select torch's kernels without vector instructions, and the code path of MKL that computes the same on every x86
CPU. Both libraries read their variables once, so a job must have them when it starts."""
