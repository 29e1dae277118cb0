"""The precision of matrix products, and which precisions a device supports."""

import torch

from ..config import Model, Training, supports_varlen_attention
from ..config.keying import require
from ..network.packed_attention import HAS_TRITON, PackedAttention
from ..numerics import configure_precision


def configure_training(
    model: Model, training: Training, device: torch.device, attention: PackedAttention = "auto"
) -> None:
    """``configure_precision`` for a training. Raises ValueError for what this device does not support."""
    gpu, precision = device.type == "cuda", training.precision
    configure_precision("training.precision", precision, device)
    if gpu and training.batching == "packed":
        require(precision == "bf16", "training.precision", precision, "bf16 where training.batching is packed on a GPU")
        named = "model.p_drop_attention"
        allowed = "0 where training.batching is packed on a GPU and Triton is not installed"
        require(HAS_TRITON or not model.p_drop_attention, named, model.p_drop_attention, allowed)
        named, allowed = (
            "site.packed_attention (REPRO_PACKED_ATTENTION)",
            "auto or varlen where Triton is not installed",
        )
        require(HAS_TRITON or attention != "own", named, attention, allowed)
        allowed = "buckets on a GPU unless model.d_k = model.d_v, a multiple of 8 up to 256"
        require(supports_varlen_attention(model), "training.batching", training.batching, allowed)


def autocast(training: Training, device: torch.device) -> torch.autocast:
    """The context in which forward passes compute: bfloat16 products for precision bf16, else unchanged."""
    return torch.autocast(device.type, torch.bfloat16, enabled=training.precision == "bf16")
