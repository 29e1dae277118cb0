"""What a device is told to do with products, and what it cannot do."""

import torch

from model.config import Model, Training, fits_the_kernel
from model.fields import require


def settle_precision(model: Model, training: Training, device: torch.device) -> None:
    """Multiply float32 matrices exactly, or in TF32. Raises ValueError naming what this device does not offer."""
    gpu, precision = device.type == "cuda", training.precision
    require(gpu or precision != "tf32", "training.precision", precision, "fp32 or bf16 on a CPU (tf32 needs a GPU)")
    if gpu and training.batching == "packed":
        require(precision == "bf16", "training.precision", precision, "bf16 where training.batching is packed on a GPU")
        allowed = "buckets on a GPU unless model.d_k = model.d_v, a multiple of 8 up to 256"
        require(fits_the_kernel(model), "training.batching", training.batching, allowed)
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
