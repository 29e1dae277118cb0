"""The Transformer with torch's layers: the reference for this project's layers.

Inputs, outputs and parameter names are the same as in ``model.network.transformer``, so one checkpoint, including
Adam's moments, loads into both. ``nn.TransformerEncoder`` and ``nn.TransformerDecoder`` store no values and receive the
parameters on each call. The reference is simple, not fast: search recomputes the whole prefix at every step,
compilation has no effect, and packed batches are not supported.
"""

from collections.abc import Iterable
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ..config import Model
from ..config.special_pieces import PAD
from .transformer import DecoderLayer, EncoderLayer, Transformer

ENCODER_MODULES = {
    "self_attn.out_proj": "attention.out",
    "norm1": "around_attention.norm",
    "linear1": "feed_forward.inner",
    "linear2": "feed_forward.outer",
    "norm2": "around_feed_forward.norm",
}
"""Maps torch's names of the modules of an encoder layer to this project's names."""
DECODER_MODULES = ENCODER_MODULES | {
    "multihead_attn.out_proj": "cross.out",
    "norm2": "around_cross.norm",
    "norm3": "around_feed_forward.norm",
}


class Reference(Transformer):
    """A ``Transformer`` that computes its stacks (§3.1) with torch.nn.

    ``encoder`` and ``decoder`` only hold the parameters. Raises ValueError like ``Transformer``.
    """

    def __init__(self, config: Model, source_size: int, target_size: int) -> None:
        super().__init__(config, source_size, target_size)
        # A tuple hides the stacks from ``parameters`` and ``state_dict``: their parameters have no values.
        self.stacks = torch_stacks(config)

    def train(self, mode: bool = True) -> Self:
        for stack in self.stacks:
            stack.train(mode)
        return super().train(mode)

    def encode(self, source_BS: Tensor) -> tuple[Tensor, Tensor]:
        """Return the encoder's output (B, S, D) and the mask of real positions (B, 1, 1, S)."""
        x_BSD = self.embed(source_BS, self.input_ND, self.source_positions, start=0)
        padding_BS = source_BS == PAD
        weights = stack_weights(self.encoder, self.encoder_norm)
        memory_BSD = functional_call(self.stacks[0], weights, x_BSD, {"src_key_padding_mask": padding_BS})
        return memory_BSD, ~padding_BS[:, None, None, :]

    def decode(self, target_BT: Tensor, memory_BSD: Tensor, mask_B11S: Tensor | None) -> Tensor:
        """Return hidden states (B, T, D) of whole target prefixes."""
        x_BTD = self.embed(target_BT, self.target_embedding, self.target_positions, start=0)
        length = x_BTD.shape[1]
        masks: dict[str, Any] = {
            "tgt_mask": torch.ones(length, length, dtype=torch.bool, device=x_BTD.device).triu(1),
            "tgt_is_causal": True,
        }
        if mask_B11S is not None:
            masks["memory_key_padding_mask"] = ~mask_B11S[:, 0, 0]
        weights = stack_weights(self.decoder, self.decoder_norm)
        return functional_call(self.stacks[1], weights, (x_BTD, memory_BSD), masks)


def torch_stacks(config: Model) -> tuple[nn.TransformerEncoder, nn.TransformerDecoder]:
    """Build both stacks without parameter values, with the rate of each dropout (§5.4)."""
    shape: dict[str, Any] = {
        "d_model": config.d_model,
        "nhead": config.heads,
        "dim_feedforward": config.d_ff,
        "dropout": config.p_drop,
        "batch_first": True,
        "norm_first": config.norm == "pre",
        "device": "meta",
    }
    encoder_layer = nn.TransformerEncoderLayer(**shape)
    decoder_layer = nn.TransformerDecoderLayer(**shape)
    for layer in (encoder_layer, decoder_layer):
        layer.dropout.p = config.p_drop_relu
    for attention in (encoder_layer.self_attn, decoder_layer.self_attn, decoder_layer.multihead_attn):
        attention.dropout = config.p_drop_attention
        if not config.qkv_bias:
            attention.register_parameter("in_proj_bias", None)
    # nn.Transformer adds a final norm to post-LN stacks too; the paper does not.
    norms = [nn.LayerNorm(config.d_model, device="meta") if config.norm == "pre" else None for _ in range(2)]
    return (
        nn.TransformerEncoder(encoder_layer, config.layers, norms[0], enable_nested_tensor=False),
        nn.TransformerDecoder(decoder_layer, config.layers_of_decoder, norms[1]),
    )


def stack_weights(layers: Iterable[EncoderLayer | DecoderLayer], norm: nn.Module) -> dict[str, Tensor]:
    """Return a stack's parameters by torch's names; torch stores a cross-attention's as one matrix."""
    weights: dict[str, Tensor] = {f"norm.{name}": parameter for name, parameter in norm.named_parameters()}
    for number, layer in enumerate(layers):
        modules = DECODER_MODULES if isinstance(layer, DecoderLayer) else ENCODER_MODULES
        for theirs, ours in modules.items():
            for name, parameter in layer.get_submodule(ours).named_parameters():
                weights[f"layers.{number}.{theirs}.{name}"] = parameter
        for name, parameter in layer.attention.query_keys_values.named_parameters():
            weights[f"layers.{number}.self_attn.in_proj_{name}"] = parameter
        if isinstance(layer, DecoderLayer):
            keys_values = dict(layer.cross.keys_values.named_parameters())
            for name, parameter in layer.cross.query.named_parameters():
                joined = torch.cat([parameter, keys_values[name]])
                weights[f"layers.{number}.multihead_attn.in_proj_{name}"] = joined
    return weights
