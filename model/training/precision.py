"""The precision of matrix products, and which precisions a device supports."""

import torch

from ..config import Model, Training, supports_varlen_attention
from ..config.keying import require
from ..network.attention import PackedAttention
from ..numerics import configure_precision


def configure_training(
    model: Model, training: Training, device: torch.device, packed_attention: PackedAttention | None = None
) -> None:
    """``configure_precision`` for a training. Raises ValueError for what this device does not support."""
    precision = training.precision
    configure_precision("training.precision", precision, device)
    if device.type != "cuda" or training.batching != "packed":
        return
    require(precision == "bf16", "training.precision", precision, "bf16 where training.batching is packed on a GPU")
    p_drop = model.p_drop_attention
    allowed = "0 where training.batching is packed on a GPU"
    require(packed_attention is not None or not p_drop, "model.p_drop_attention", p_drop, allowed)
    allowed = "buckets on a GPU unless model.d_k = model.d_v, a multiple of 8 up to 256"
    require(supports_varlen_attention(model), "training.batching", training.batching, allowed)


def autocast(training: Training, device: torch.device) -> torch.autocast:
    """The context in which forward passes compute: bfloat16 products for precision bf16, else unchanged."""
    return torch.autocast(device.type, torch.bfloat16, enabled=training.precision == "bf16")
