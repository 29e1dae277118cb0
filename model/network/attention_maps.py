"""The attention weights of every head and layer (§3.2.3) for a source and a target prefix.

Used for figures of single pairs; nothing is cached. Shape suffixes are those of ``model.network.transformer``.
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from .attention import AttentionMask, CrossAttention, KeysValues, PaddedMask, SelfAttention
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
    """Attention weights for a source and a target prefix (bos …); padding at the end of the target is not masked."""
    if model.config.attention != "own":
        model = with_own_layers(model)
    encoder: list[Tensor] = []
    decoder: list[Tensor] = []
    cross: list[Tensor] = []

    def self_attention_hook(kept: list[Tensor], causal: bool) -> Callable[[nn.Module, tuple[Tensor, PaddedMask]], None]:
        def record(attention: nn.Module, inputs: tuple[Tensor, PaddedMask]) -> None:
            assert isinstance(attention, SelfAttention)
            x_BTD, attention_mask = inputs[:2]
            steps = x_BTD.shape[1]
            seen = torch.ones(steps, steps, dtype=torch.bool, device=x_BTD.device).tril()
            kept.append(attention.weights(x_BTD, PaddedMask(seen) if causal else attention_mask))

        return record

    def cross_attention_hook(attention: nn.Module, inputs: tuple[Tensor, KeysValues, AttentionMask]) -> None:
        assert isinstance(attention, CrossAttention)
        cross.append(attention.weights(*inputs))

    with ExitStack() as hooks:
        for encoder_layer in model.encoder:
            hook = self_attention_hook(encoder, causal=False)
            hooks.enter_context(encoder_layer.attention.register_forward_pre_hook(hook))
        for layer in model.decoder:
            hook = self_attention_hook(decoder, causal=True)
            hooks.enter_context(layer.attention.register_forward_pre_hook(hook))
            hooks.enter_context(layer.cross.register_forward_pre_hook(cross_attention_hook))
        model(source_BS, target_BT)
    return AttentionMaps(torch.stack(encoder), torch.stack(decoder), torch.stack(cross))


def with_own_layers(model: Transformer) -> Transformer:
    """A copy of a model with torch's layers in this project's own layers."""
    own = Transformer(replace(model.config, attention="own"), model.source_size, model.target_size)
    own.load_state_dict(model.state_dict())
    return own.to(model.target_embedding.device).eval()
