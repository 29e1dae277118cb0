"""Computes the attention weights of every head and layer (§3.2.3) for a source and a target prefix.

Figures of single pairs use them; nothing is cached. Shape suffixes are the same as in ``model.network.transformer``.
"""

from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from .transformer import Transformer


@dataclass(frozen=True)
class AttentionMaps:
    """Attention weights; each row sums to 1.

    ``encoder`` is (L, B, H, S, S), ``decoder`` (L, B, H, T, T) and ``cross`` (L, B, H, T, S). Row t of ``decoder`` and
    ``cross`` belongs to the position that reads piece t and predicts the next.
    """

    encoder: Tensor
    decoder: Tensor
    cross: Tensor


@torch.no_grad()
def attention_maps(model: Transformer, source_BS: Tensor, target_BT: Tensor) -> AttentionMaps:
    """Return the attention weights for a source and a target prefix (bos …), whose padding at the end is not masked."""
    if model.config.attention != "own":
        model = with_own_layers(model)
    encoder = [layer.attention for layer in model.encoder]
    decoder = [layer.attention for layer in model.decoder]
    crosses = [layer.cross for layer in model.decoder]
    inputs: dict[nn.Module, tuple[Any, ...]] = {}
    with ExitStack() as hooks:
        for attention in (*encoder, *decoder, *crosses):
            hooks.enter_context(attention.register_forward_pre_hook(inputs.__setitem__))
        model(source_BS, target_BT)
    return AttentionMaps(
        torch.stack([attention.weights(*inputs[attention]) for attention in encoder]),
        torch.stack([attention.weights(*inputs[attention]) for attention in decoder]),
        torch.stack([cross.weights(*inputs[cross]) for cross in crosses]),
    )


def with_own_layers(model: Transformer) -> Transformer:
    """Copy a model with torch's layers to a model with this project's layers."""
    own = Transformer(replace(model.config, attention="own"), model.source_size, model.target_size)
    own.load_state_dict(model.state_dict())
    return own.to(model.target_embedding.device).eval()
