"""Computes signs of collapse: statistics of the network's layers that the loss does not show, for a few dev sentences.

A post-LN encoder can make all positions of a sentence almost equal (cosine near 1), for example if f(x) of a sublayer
is much longer than the residual x (ratio above 1). Uniform attention (entropy near log S) distinguishes no positions:
uniform cross-attention ignores the source. Cross-attention on few source positions omits the others (coverage near 0).
Each number is a mean over positions, queries or sentences, without padding.

Shape suffixes are the same as in ``model.network.transformer``.
"""

from contextlib import ExitStack
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .. import metric_names as names
from ..config.special_pieces import PAD
from ..network.attention import CrossAttention, SelfAttention
from ..network.attention_maps import with_own_layers
from ..network.transformer import DecoderLayer, EncoderLayer, Residual, Transformer
from .coverage import marginal, normalised_entropy

Values = dict[str, float]
OVER_LAYERS = (
    names.ATTENTION_ENTROPY,
    names.ATTENTION_ENTROPY_ENCODER,
    names.ATTENTION_ENTROPY_DECODER,
    names.ATTENTION_COVERAGE_ENCODER,
    names.ATTENTION_COVERAGE_CROSS,
)
"""Names of the metrics that also have a mean over layers."""


@torch.no_grad()
def probe(model: Transformer, source_BS: Tensor, target_BT: Tensor) -> Values:
    """Return the signs of collapse for sources and decoder inputs bos …, padded at the end (docs/files.md):

    ``encoder_cosine`` and ``decoder_cosine`` of the outputs of the stacks, and the means of ``OVER_LAYERS``. The suffix
    ``_1`` means layer 1: ``encoder_cosine_1``. Only single layers have ``encoder_norm_1``, ``decoder_norm_1`` and
    ``residual_ratio_encoder_attention_1``, with one ratio for each sublayer. The model must be in evaluation mode, so
    that f(x) has no dropout.
    """
    if model.config.attention != "own":
        model = with_own_layers(model)
    recorded = Recorded()
    residuals = [module for module in model.modules() if isinstance(module, Residual)]
    attentions = [module for module in model.modules() if isinstance(module, SelfAttention | CrossAttention)]
    with ExitStack() as hooks:
        for module in (*residuals, *(around.drop for around in residuals), *attentions):
            hooks.enter_context(module.register_forward_hook(recorded))
        memory_BSD, mask_B11S = model.encode(source_BS)
        hidden_BTD = model.decode(target_BT, memory_BSD, mask_B11S)
    source_real = source_BS != PAD
    target_real = target_BT != PAD
    signs = {
        names.ENCODER_COSINE: cosine(memory_BSD, source_real),
        names.DECODER_COSINE: cosine(hidden_BTD, target_real),
    }
    for of_layers in (
        [encoder_signs(layer, recorded, source_real) for layer in model.encoder],
        [decoder_signs(layer, recorded, source_real, target_real) for layer in model.decoder],
    ):
        for number, of_layer in enumerate(of_layers, start=1):
            signs |= {f"{name}_{number}": value for name, value in of_layer.items()}
        for name in filter(of_layers[0].__contains__, OVER_LAYERS):
            signs[name] = torch.stack([of_layer[name] for of_layer in of_layers]).mean()
    return {name: float(value) for name, value in signs.items() if value.isfinite()}


class Recorded:
    """A forward hook that stores the inputs and the output of each module on which it is registered."""

    def __init__(self) -> None:
        self.inputs: dict[nn.Module, tuple[Any, ...]] = {}
        self.outputs: dict[nn.Module, Tensor] = {}

    def __call__(self, module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        self.inputs[module] = inputs
        self.outputs[module] = output

    def ratio(self, around: Residual, real: Tensor) -> Tensor:
        """Return the mean of |f(x)| / |x| over positions: a sublayer's output relative to the residual stream."""
        x_BTD = self.inputs[around][0].float()
        added_BTD = self.outputs[around.drop].float()
        return (added_BTD.norm(dim=-1) / x_BTD.norm(dim=-1))[real].mean()

    def sum_norm(self, around: Residual, real: Tensor) -> Tensor:
        """Return the mean norm of x + f(x), the sum that post-LN normalises."""
        x_BTD = self.inputs[around][0] + self.outputs[around.drop]
        return x_BTD[real].float().norm(dim=-1).mean()


def encoder_signs(layer: EncoderLayer, recorded: Recorded, source_real: Tensor) -> dict[str, Tensor]:
    around = layer.around_feed_forward
    weights_BHSS = layer.attention.weights(*recorded.inputs[layer.attention])
    return {
        names.ENCODER_COSINE: cosine(recorded.outputs[around], source_real),
        names.ENCODER_NORM: recorded.sum_norm(around, source_real),
        names.RESIDUAL_RATIO_ENCODER_ATTENTION: recorded.ratio(layer.around_attention, source_real),
        names.RESIDUAL_RATIO_ENCODER_FEED_FORWARD: recorded.ratio(around, source_real),
        names.ATTENTION_ENTROPY_ENCODER: query_entropy(weights_BHSS, source_real),
        names.ATTENTION_COVERAGE_ENCODER: coverage(weights_BHSS, source_real, source_real),
    }


def decoder_signs(
    layer: DecoderLayer, recorded: Recorded, source_real: Tensor, target_real: Tensor
) -> dict[str, Tensor]:
    around = layer.around_feed_forward
    weights_BHTT = layer.attention.weights(*recorded.inputs[layer.attention])
    weights_BHTS = layer.cross.weights(*recorded.inputs[layer.cross])
    return {
        names.DECODER_COSINE: cosine(recorded.outputs[around], target_real),
        names.DECODER_NORM: recorded.sum_norm(around, target_real),
        names.RESIDUAL_RATIO_DECODER_ATTENTION: recorded.ratio(layer.around_attention, target_real),
        names.RESIDUAL_RATIO_DECODER_CROSS: recorded.ratio(layer.around_cross, target_real),
        names.RESIDUAL_RATIO_DECODER_FEED_FORWARD: recorded.ratio(around, target_real),
        names.ATTENTION_ENTROPY_DECODER: query_entropy(weights_BHTT, target_real),
        names.ATTENTION_ENTROPY: query_entropy(weights_BHTS, target_real),
        names.ATTENTION_COVERAGE_CROSS: coverage(weights_BHTS, target_real, source_real),
    }


def coverage(weights_BHTS: Tensor, queries_real: Tensor, source_real: Tensor) -> Tensor:
    """Return the mean of H(p) / log S over sentences, where p is the mean attention on each source position."""
    return normalised_entropy(marginal(weights_BHTS, queries_real), source_real.sum(1)).mean()


def cosine(x_BTD: Tensor, real_BT: Tensor) -> Tensor:
    """Return the mean cosine over all pairs of different positions of a sentence; nan if there is no pair."""
    unit_BTD = F.normalize(x_BTD.float(), dim=-1) * real_BT[:, :, None]
    positions_B = real_BT.sum(1)
    # The square of a sum contains every ordered pair once, and each vector's cosine of 1 with itself.
    cosines = unit_BTD.sum(1).square().sum() - positions_B.sum()
    pairs = (positions_B * (positions_B - 1)).sum()
    return torch.where(pairs > 0, cosines / pairs, torch.nan)  # without pairs ``cosines`` is 0 up to rounding


def query_entropy(weights_BHTS: Tensor, real_BT: Tensor) -> Tensor:
    """Return the mean entropy in nats of the attention of a query, over heads and positions."""
    entropy_BHT = torch.special.entr(weights_BHTS.float()).sum(-1)
    return entropy_BHT.transpose(1, 2)[real_BT].mean()
