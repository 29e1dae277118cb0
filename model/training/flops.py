"""Counts the floating-point operations of an update, and lists the peak rates of devices; without torch.

Only matrix products count, as is usual for utilisation (MFU): 2 operations per weight and token forward, 4 backward.
Padding, norms, softmax, dropout and the optimizer do not count, so padding lowers utilisation.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ..config import Model
from ..metric_names import MFU

TRAINED = 6
"""Operations per weight and token: a multiplication and an addition in one forward and two backward products."""

PEAKS = {"H200": 989e12, "H100": 989e12, "A100": 312e12}
"""Maps a part of the device's name to its peak FLOP/s for dense bf16 products, from the data sheets (SXM).

A large product on an H200 reaches about 790e12 (measured)."""


@dataclass(frozen=True)
class Work:
    """Operations per target token, averaged over the corpus, and the device's peak rate (FLOP/s), 0 if unknown."""

    flops_per_token: float
    device_peak: float

    def mfu(self, ranks: int) -> dict[str, float]:
        """Return ``mfu``, the used share of the devices' peak, at one target token a second; empty if unknown."""
        return {MFU: self.flops_per_token / ranks / self.device_peak} if self.device_peak else {}


def peak_flops(device: str) -> float:
    """Return the peak FLOP/s of a device from its name; 0 for an unknown device."""
    return next((peak for name, peak in PEAKS.items() if name in device), 0.0)


def training_flops(model: Model, vocabulary: int, source_B: ArrayLike, target_B: ArrayLike) -> float:
    """Return the operations of forward and backward pass over pairs of these lengths (special tokens included).

    ``vocabulary`` is the number of entries of the target side. Causal attention counts only the visible positions.
    """
    source = np.asarray(source_B, np.float64)
    target = np.asarray(target_B, np.float64)
    attention = 2 * model.d_model * model.heads * (model.d_k + model.d_v)
    feed_forward = 2 * model.d_model * model.d_ff
    encoder = model.layers * (attention + feed_forward)
    decoder = model.layers_of_decoder * (2 * attention + feed_forward) + model.d_model * vocabulary
    weights = encoder * source.sum() + decoder * target.sum()
    # Each head and pair of positions needs d_k products for the score and d_v products for the weighted value.
    of_encoder = model.layers * (source**2).sum()
    of_decoder = model.layers_of_decoder * ((source * target).sum() + (target * (target + 1) / 2).sum())
    scores = model.heads * (model.d_k + model.d_v) * (of_encoder + of_decoder)
    # Cross-attention projects keys and values once per source token, not once per target token.
    moved = model.layers_of_decoder * attention / 2 * (source.sum() - target.sum())
    return float(TRAINED * (weights + scores + moved))
