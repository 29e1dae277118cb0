"""The precision of matrix products, and which precisions a device supports."""

from pathlib import Path

import torch

from ..config import Model, Training, supports_varlen_attention
from ..config.keying import require
from ..network.packed_attention import HAS_TRITON

CPU_FLAGS = Path("/proc/cpuinfo")


def has_bf16() -> bool:
    """Whether this CPU multiplies in bfloat16; True on a system without /proc/cpuinfo."""
    try:
        flags = set(CPU_FLAGS.read_text().split())
    except OSError:
        return True
    return not flags.isdisjoint(("avx512_bf16", "amx_bf16", "bf16"))


def configure_precision(model: Model, training: Training, device: torch.device) -> None:
    """Multiply float32 matrices exactly, or in TF32. Raises ValueError for what this device does not support."""
    gpu, precision = device.type == "cuda", training.precision
    require(gpu or precision != "tf32", "training.precision", precision, "fp32 or bf16 on a CPU (tf32 needs a GPU)")
    slow = "fp32 on this CPU, whose instructions have no bfloat16 (it would take thirty times as long)"
    require(gpu or precision != "bf16" or has_bf16(), "training.precision", precision, slow)
    if gpu and training.batching == "packed":
        require(precision == "bf16", "training.precision", precision, "bf16 where training.batching is packed on a GPU")
        for name in ("attention_coverage_encoder", "attention_coverage_cross"):
            weight = getattr(training, name)
            require(not weight, f"training.{name}", weight, "0 where training.batching is packed on a GPU")
        named = "model.p_drop_attention"
        allowed = "0 where training.batching is packed on a GPU and Triton is not installed"
        require(HAS_TRITON or not model.p_drop_attention, named, model.p_drop_attention, allowed)
        allowed = "buckets on a GPU unless model.d_k = model.d_v, a multiple of 8 up to 256"
        require(supports_varlen_attention(model), "training.batching", training.batching, allowed)
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")


def autocast(training: Training, device: torch.device) -> torch.autocast:
    """The context in which forward passes compute: bfloat16 products for precision bf16, else unchanged."""
    return torch.autocast(device.type, torch.bfloat16, enabled=training.precision == "bf16")
