"""Signs of collapse: numbers about the network's layers that no loss shows, for a few dev sentences.

A post-LN encoder can make all positions of a sentence alike (cosine near 1); a uniform cross-attention (entropy near
log S) ignores the source, and one that looks at few source positions leaves the others out (coverage near 0). Each
number is a mean over positions or queries of all sentences; padding counts nowhere.

Shape suffixes are those of ``model.network.transformer``.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
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
from ..network.transformer import DecoderLayer, EncoderLayer, Transformer
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
    signs: dict[str, Tensor] = {}
    with _record(model, source_real, target_real, signs):
        memory_BSD, mask_B11S = model.encode(source_BS)
        hidden_BTD = model.decode(target_BT, memory_BSD, mask_B11S)
    signs[ENCODER_COSINE] = cosine(memory_BSD, source_real)
    signs[DECODER_COSINE] = cosine(hidden_BTD, target_real)
    for name in (ATTENTION_ENTROPY, ATTENTION_COVERAGE_ENCODER, ATTENTION_COVERAGE_CROSS):
        layers = [signs[f"{name}_{number}"] for number in range(1, len(model.decoder) + 1)]
        signs[name] = torch.stack(layers).mean()
    return {name: float(value) for name, value in signs.items() if value.isfinite()}


@contextmanager
def _record(model: Transformer, source_real: Tensor, target_real: Tensor, signs: dict[str, Tensor]) -> Iterator[None]:
    """Record the numbers of every layer that computes in the block; ``…_real`` mark the positions without padding."""

    def add_norm(
        name: str, real: Tensor, _: nn.Module, inputs: tuple[Tensor, ...], output: Tensor | None = None
    ) -> None:
        x_BTD = inputs[0] if output is None else output
        signs[name] = x_BTD[real].float().norm(dim=-1).mean()

    def add_cosine(name: str, real: Tensor, _: nn.Module, _inputs: Any, output: Tensor) -> None:
        signs[name] = cosine(output, real)

    def add_attention(number: int, attention: nn.Module, inputs: tuple[Any, ...]) -> None:
        assert isinstance(attention, SelfAttention | CrossAttention)
        cross = isinstance(attention, CrossAttention)
        weights = attention.weights(*inputs)
        real = target_real if cross else source_real
        coverage_B = normalised_entropy(marginal(weights, real), source_real.sum(1))
        coverage = ATTENTION_COVERAGE_CROSS if cross else ATTENTION_COVERAGE_ENCODER
        signs[f"{coverage}_{number}"] = coverage_B.mean()
        if cross:
            signs[f"{ATTENTION_ENTROPY}_{number}"] = query_entropy(weights, real)

    stacks: tuple[tuple[str, str, Sequence[EncoderLayer | DecoderLayer], Tensor], ...] = (
        (ENCODER_COSINE, ENCODER_NORM, model.encoder, source_real),
        (DECODER_COSINE, DECODER_NORM, model.decoder, target_real),
    )
    with ExitStack() as hooks:
        for cosine_name, norm_name, layers, real in stacks:
            for number, layer in enumerate(layers, start=1):
                add = partial(add_cosine, f"{cosine_name}_{number}", real)
                hooks.enter_context(layer.register_forward_hook(add))
                around = layer.around_feed_forward
                norm = partial(add_norm, f"{norm_name}_{number}", real)
                if around.pre:
                    hooks.enter_context(around.register_forward_hook(norm))
                else:
                    hooks.enter_context(around.norm.register_forward_pre_hook(norm))
                attention = layer.cross if isinstance(layer, DecoderLayer) else layer.attention
                hooks.enter_context(attention.register_forward_pre_hook(partial(add_attention, number)))
        yield


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
