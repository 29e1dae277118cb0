"""Signs of collapse: numbers about the network's layers that no loss shows, for a few dev sentences.

A post-LN encoder can make all positions of a sentence alike (cosine near 1); a uniform cross-attention (entropy near
log S) ignores the source, and one that looks at few source positions leaves the others out (coverage near 0). Each
number is a mean over positions or queries of all sentences; padding counts nowhere.

Shape suffixes are those of ``model.network.transformer``.
"""

from contextlib import ExitStack
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..config.special_pieces import PAD
from ..metric_names import (
    ATTENTION_COVERAGE_CROSS,
    ATTENTION_COVERAGE_ENCODER,
    ATTENTION_ENTROPY,
    DECODER_COSINE,
    DECODER_NORM,
    ENCODER_COSINE,
    ENCODER_NORM,
)
from ..network.attention import CrossAttention, SelfAttention
from ..network.attention_maps import with_own_layers
from ..network.transformer import DecoderLayer, EncoderLayer, Residual, Transformer
from .coverage import marginal, normalised_entropy

Values = dict[str, float]


@torch.no_grad()
def probe(model: Transformer, source_BS: Tensor, target_BT: Tensor) -> Values:
    """The signs of collapse for sources … eos and decoder inputs bos …, padded at the end (docs/files.md):

    ``encoder_cosine`` and ``decoder_cosine`` of the outputs of the stacks, ``attention_entropy``,
    ``attention_coverage_encoder`` and ``attention_coverage_cross`` over all layers. With the number of a layer from 1
    at the end, each is of that layer, as are ``encoder_norm_1`` and ``decoder_norm_1``.
    """
    if model.config.attention != "own":
        model = with_own_layers(model)
    source_real = source_BS != PAD
    target_real = target_BT != PAD
    inputs: dict[nn.Module, tuple[Any, ...]] = {}
    outputs: dict[nn.Module, Tensor] = {}
    layers: list[EncoderLayer | DecoderLayer] = [*model.encoder, *model.decoder]
    with ExitStack() as hooks:
        for layer in layers:
            around = layer.around_feed_forward
            attention = layer.cross if isinstance(layer, DecoderLayer) else layer.attention
            hooks.enter_context(attention.register_forward_pre_hook(inputs.__setitem__))
            hooks.enter_context(around.norm.register_forward_pre_hook(inputs.__setitem__))
            hooks.enter_context(
                around.register_forward_hook(lambda module, _, output: outputs.update({module: output}))
            )
        memory_BSD, mask_B11S = model.encode(source_BS)
        hidden_BTD = model.decode(target_BT, memory_BSD, mask_B11S)

    def coverage(attention: SelfAttention | CrossAttention, queries_real: Tensor) -> Tensor:
        weights_BHTS = attention.weights(*inputs[attention])
        return normalised_entropy(marginal(weights_BHTS, queries_real), source_real.sum(1)).mean()

    def sum_norm(around: Residual, real: Tensor) -> Tensor:
        """The norm of x + f(x), which post-LN then normalises."""
        x_BTD = outputs[around] if around.pre else inputs[around.norm][0]
        mean: Tensor = x_BTD[real].float().norm(dim=-1).mean()
        return mean

    signs: dict[str, Tensor] = {}
    for number, encoder_layer in enumerate(model.encoder, start=1):
        around = encoder_layer.around_feed_forward
        signs[f"{ENCODER_COSINE}_{number}"] = cosine(outputs[around], source_real)
        signs[f"{ENCODER_NORM}_{number}"] = sum_norm(around, source_real)
        signs[f"{ATTENTION_COVERAGE_ENCODER}_{number}"] = coverage(encoder_layer.attention, source_real)
    for number, decoder_layer in enumerate(model.decoder, start=1):
        around = decoder_layer.around_feed_forward
        cross = decoder_layer.cross
        signs[f"{DECODER_COSINE}_{number}"] = cosine(outputs[around], target_real)
        signs[f"{DECODER_NORM}_{number}"] = sum_norm(around, target_real)
        signs[f"{ATTENTION_COVERAGE_CROSS}_{number}"] = coverage(cross, target_real)
        signs[f"{ATTENTION_ENTROPY}_{number}"] = query_entropy(cross.weights(*inputs[cross]), target_real)
    signs[ENCODER_COSINE] = cosine(memory_BSD, source_real)
    signs[DECODER_COSINE] = cosine(hidden_BTD, target_real)
    for name in (ATTENTION_ENTROPY, ATTENTION_COVERAGE_ENCODER, ATTENTION_COVERAGE_CROSS):
        count = len(model.encoder if name == ATTENTION_COVERAGE_ENCODER else model.decoder)
        of_layers = [signs[f"{name}_{number}"] for number in range(1, count + 1)]
        signs[name] = torch.stack(of_layers).mean()
    return {name: float(value) for name, value in signs.items() if value.isfinite()}


def cosine(x_BTD: Tensor, real_BT: Tensor) -> Tensor:
    """Mean cosine between two different positions of one sentence, over all such pairs; nan where there is none."""
    unit_BTD = F.normalize(x_BTD.float(), dim=-1) * real_BT[:, :, None]
    positions_B = real_BT.sum(1)
    # The square of a sum holds every ordered pair once, and each vector's cosine of 1 with itself.
    cosines = unit_BTD.sum(1).square().sum() - positions_B.sum()
    pairs = (positions_B * (positions_B - 1)).sum()
    return torch.where(pairs > 0, cosines / pairs, torch.nan)  # without pairs ``cosines`` is 0 but for rounding


def query_entropy(weights_BHTS: Tensor, real_BT: Tensor) -> Tensor:
    """Mean entropy in nats of the attention of one query (head and position)."""
    entropy_BHT = torch.special.entr(weights_BHTS.float()).sum(-1)
    mean: Tensor = entropy_BHT.transpose(1, 2)[real_BT].mean()
    return mean
