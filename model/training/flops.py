"""Floating-point operations of an update, and the peak rates of devices; torch-free.

Only matrix products count, as is usual for utilisation (MFU): 2 operations per weight and token forward, twice that
backward. Padding, norms, softmax, dropout and the optimizer count nothing, so padding shows as lost utilisation.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ..config import Model
from ..metric_names import MFU

TRAINED = 6
"""Operations per weight and token: one multiplication and one addition, in the forward and in two backward products."""

PEAKS = {"H200": 989e12, "H100": 989e12, "A100": 312e12}
"""Dense bf16 products a second by the data sheets (SXM), by what the device's name holds. A large product measured on
an H200 comes to about 790e12."""


@dataclass(frozen=True)
class Work:
    """Operations per target token, averaged over the corpus, and the device's peak rate (FLOP/s), 0 if unknown."""

    flops_per_token: float
    device_peak: float

    def mfu(self, ranks: int) -> dict[str, float]:
        """``mfu``, the share of the devices' peak that is used, at one target token a second; empty if unknown."""
        return {MFU: self.flops_per_token / ranks / self.device_peak} if self.device_peak else {}


def peak_flops(device: str) -> float:
    """The peak FLOP/s of a device by its name; 0 for an unknown one."""
    return next((peak for name, peak in PEAKS.items() if name in device), 0.0)


def training_flops(model: Model, vocabulary: int, source_B: ArrayLike, target_B: ArrayLike) -> float:
    """Operations of forward and backward over pairs of these lengths, in pieces with eos or bos.

    ``vocabulary`` is the number of entries of the target side. Causal attention counts the positions that are seen.
    """
    source = np.asarray(source_B, np.float64)
    target = np.asarray(target_B, np.float64)
    encoder, decoder, softmax = product_weights(model, vocabulary)
    weights = encoder * source.sum() + (decoder + softmax) * target.sum()
    # Per head and pair of positions d_k products for a score and d_v for what it weighs.
    of_encoder = model.layers * (source**2).sum()
    of_decoder = model.layers_of_decoder * ((source * target).sum() + (target * (target + 1) / 2).sum())
    attention = model.heads * (model.d_k + model.d_v) * (of_encoder + of_decoder)
    # Cross-attention projects keys and values once per source token, not once per target token.
    of_sources = model.layers_of_decoder * model.d_model * model.heads * (model.d_k + model.d_v)
    moved = of_sources * (source.sum() - target.sum())
    return float(TRAINED * (weights + attention + moved))


def product_weights(model: Model, vocabulary: int) -> tuple[int, int, int]:
    """Weights in matrix products: of the encoder's layers, of the decoder's, and before the softmax."""
    attention = 2 * model.d_model * model.heads * (model.d_k + model.d_v)
    feed_forward = 2 * model.d_model * model.d_ff
    return (
        model.layers * (attention + feed_forward),
        model.layers_of_decoder * (2 * attention + feed_forward),
        model.d_model * vocabulary,
    )
