"""The Transformer (§3): computes hidden states and logits for a source sentence and a target prefix.

This module does not depend on text, batches, loss or search. It computes all positions of a target at once; a search
computes one position at a time with the same parameters (``model.decoding.cached_decoder``).

Shape suffixes:
    B sentences     S source positions     T target positions     D d_model     H heads     K d_k     V d_v
    F d_ff          N vocabulary           L layers

Without B, S and T are positions of packed sentences (``Packing``); "…" stands for either layout.

Special pieces: 0 pad, 1 bos, 2 eos, 3 unknown. ``Model.source_ends`` names those around a source; a decoder reads bos …
and predicts … eos.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..config import Model
from ..config.keying import require
from ..config.special_pieces import PAD
from .attention import (
    AttentionMask,
    CrossAttention,
    KeysValues,
    PackedAttention,
    PackedMask,
    PaddedMask,
    SelfAttention,
    SequenceOffsets,
    project_memories,
)
from .dropout import Dropout
from .linear import Linear, linear


@dataclass(frozen=True)
class Packing:
    """The layout of packed pairs: all sources (S) and all targets (T) end to end in one dimension.

    ``source_positions_S`` and ``target_positions_T`` are the positions of the pieces within their sentences.
    """

    source: SequenceOffsets
    target: SequenceOffsets
    source_positions_S: Tensor
    target_positions_T: Tensor


class FeedForward(nn.Module):
    """max(0, x W1 + b1) W2 + b2 (§3.3)."""

    def __init__(self, config: Model) -> None:
        super().__init__()
        self.inner = Linear(config.d_model, config.d_ff)
        self.outer = Linear(config.d_ff, config.d_model)
        self.drop = Dropout(config.p_drop_relu)

    def forward(self, x_BTD: Tensor) -> Tensor:
        return self.outer(self.drop(F.relu(self.inner(x_BTD))))


class LayerNorm(nn.LayerNorm):
    """LayerNorm computed in the number type of its weights; the output has the number type of the input."""

    def forward(self, x: Tensor) -> Tensor:
        wide = x.to(self.weight.dtype)
        return F.layer_norm(wide, self.normalized_shape, self.weight, self.bias, self.eps).to(x.dtype)


class Residual(nn.Module):
    """Residual connection and norm: LayerNorm(x + Dropout(f(x))) as in the paper (§3.1, §5.4), or pre-LN."""

    def __init__(self, config: Model) -> None:
        super().__init__()
        self.norm = LayerNorm(config.d_model)
        self.drop = Dropout(config.p_drop)
        self.pre = config.norm == "pre"

    def forward(self, x_BTD: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        if self.pre:
            return x_BTD + self.drop(sublayer(self.norm(x_BTD)))
        return self.norm(x_BTD + self.drop(sublayer(x_BTD)))


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward (§3.1)."""

    def __init__(self, config: Model) -> None:
        super().__init__()
        self.attention = SelfAttention(config)
        self.around_attention = Residual(config)
        self.feed_forward = FeedForward(config)
        self.around_feed_forward = Residual(config)

    def forward(self, x: Tensor, attention_mask: AttentionMask) -> Tensor:
        x = self.around_attention(x, lambda x: self.attention(x, attention_mask))
        return self.around_feed_forward(x, self.feed_forward)


class DecoderLayer(nn.Module):
    """Masked self-attention, then cross-attention over the encoder's output, then feed-forward (§3.1)."""

    def __init__(self, config: Model) -> None:
        super().__init__()
        self.attention = SelfAttention(config)
        self.around_attention = Residual(config)
        self.cross = CrossAttention(config)
        self.around_cross = Residual(config)
        self.feed_forward = FeedForward(config)
        self.around_feed_forward = Residual(config)

    def forward(self, x: Tensor, memory: KeysValues, self_mask: AttentionMask, cross_mask: AttentionMask) -> Tensor:
        """Return the layer's output (…, D)."""
        x = self.around_attention(x, lambda x: self.attention(x, self_mask))
        x = self.around_cross(x, lambda x: self.cross(x, memory, cross_mask))
        return self.around_feed_forward(x, self.feed_forward)


class Positions(nn.Module):
    """Adds a position vector to each embedding: sines and cosines (§3.5) or a learned table (Table 3, row E)."""

    table: Tensor

    def __init__(self, config: Model) -> None:
        super().__init__()
        self.learned = config.learns_positions
        if self.learned:
            self.table = nn.Parameter(torch.empty(config.max_positions, config.d_model))
        else:
            self.register_buffer("table", sinusoid(config.max_positions, config.d_model), persistent=False)

    def forward(self, x: Tensor, start: int | Tensor) -> Tensor:
        """Add positions ``start``, ``start`` + 1, … to (B, T, D), or the positions ``start`` (M) to (M, D).

        If ``start`` is a tensor, call ``ensure_length`` first.
        """
        if isinstance(start, Tensor):
            return x + F.embedding(start, self.table)
        end = start + x.shape[1]
        self.ensure_length(end)
        return x + self.table[start:end]

    def ensure_length(self, end: int) -> None:
        """Extend the table to ``end`` positions. Raises ValueError if it is learned and shorter."""
        if end > self.table.shape[0]:
            require(not self.learned, "position", end, f"up to model.max_positions, {self.table.shape[0]}")
            self.table = sinusoid(2 * end, self.table.shape[1]).to(self.table)


class Transformer(nn.Module):
    """Encoder and decoder stacks with embeddings (Figure 1).

    ``tied`` shares one matrix between both embeddings and the projection before the softmax (§3.4), which requires a
    joint vocabulary. Raises ValueError if the sizes differ.
    """

    encoder: Sequence[EncoderLayer]
    decoder: Sequence[DecoderLayer]

    def __init__(self, config: Model, source_size: int, target_size: int) -> None:
        super().__init__()
        if config.tied:
            require(
                source_size == target_size, "target_size", target_size, f"{source_size} (model.tied: one vocabulary)"
            )
        self.config = config
        self.source_size = source_size
        self.target_size = target_size
        self.target_embedding = nn.Parameter(torch.empty(target_size, config.d_model))
        if not config.tied:
            self.source_embedding = nn.Parameter(torch.empty(source_size, config.d_model))
            self.projection = nn.Parameter(torch.empty(target_size, config.d_model))
        self.output_bias_N = nn.Parameter(torch.zeros(target_size)) if config.output_bias else None
        self.source_positions = Positions(config)
        self.target_positions = Positions(config)
        self.drop = Dropout(config.p_drop)
        self.embedding_scale = math.sqrt(config.d_model) if config.scale_embeddings else 1.0
        self.residual_dtype: torch.dtype | None = None
        """The number type of the residual stream between sublayers; None: the type of the embeddings."""
        self.packed_attention: PackedAttention | None = None
        """The function that replaces torch's attention over packed sentences (``model.experimental``)."""
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.layers))  # type: ignore[assignment]
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.layers_of_decoder))  # type: ignore[assignment]
        # With pre-LN the output of a stack is not normalised; post-LN already ends with a norm.
        final = LayerNorm if config.norm == "pre" else nn.Identity
        self.encoder_norm = final(config.d_model)
        self.decoder_norm = final(config.d_model)
        self.reset_parameters()

    @property
    def input_ND(self) -> Tensor:
        """The source embedding, (N, D)."""
        return self.target_embedding if self.config.tied else self.source_embedding

    @property
    def output_ND(self) -> Tensor:
        """The matrix before the softmax, (N, D)."""
        return self.target_embedding if self.config.tied else self.projection

    def forward(self, source: Tensor, target: Tensor, packing: Packing | None = None) -> Tensor:
        """Return hidden states (…, D) of whole target prefixes (bos …), the input of ``logits``.

        ``source`` and ``target`` are padded rows (B, S) and (B, T), or, with ``packing``, packed pairs (S) and (T).
        """
        if packing is not None:
            return self.packed(source, target, packing)
        return self.decode(target, *self.encode(source))

    def packed(self, source_S: Tensor, target_T: Tensor, packing: Packing) -> Tensor:
        """Compute ``forward`` for packed pairs: (T, D)."""
        sources = packing.source
        targets = packing.target
        which = self.packed_attention
        self.source_positions.ensure_length(sources.max_seqlen)
        self.target_positions.ensure_length(targets.max_seqlen)
        x_SD = self.embed(source_S, self.input_ND, self.source_positions, packing.source_positions_S)
        for encoder_layer in self.encoder:
            x_SD = encoder_layer(x_SD, PackedMask(sources, sources, attention=which))
        memory_SD = self.encoder_norm(x_SD)
        x_TD = self.embed(target_T, self.target_embedding, self.target_positions, packing.target_positions_T)
        self_mask = PackedMask(targets, targets, causal=True, attention=which)
        cross_mask = PackedMask(targets, sources, attention=which)
        memories = project_memories([layer.cross for layer in self.decoder], memory_SD)
        for layer, memory in zip(self.decoder, memories, strict=True):
            x_TD = layer(x_TD, memory, self_mask, cross_mask)
        return self.decoder_norm(x_TD)

    def encode(self, source_BS: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the encoder's output (B, S, D) and the mask of real positions (B, 1, 1, S); None: no padding."""
        real_B11S = (source_BS != PAD)[:, None, None, :]
        # On a GPU this check would block the host, so the mask is always passed.
        mask_B11S = None if real_B11S.device.type == "cpu" and bool(real_B11S.all()) else real_B11S
        x_BSD = self.embed(source_BS, self.input_ND, self.source_positions, start=0)
        for layer in self.encoder:
            x_BSD = layer(x_BSD, PaddedMask(mask_B11S))
        return self.encoder_norm(x_BSD), mask_B11S

    def decode(self, target_BT: Tensor, memory_BSD: Tensor, mask_B11S: Tensor | None) -> Tensor:
        """Return hidden states (B, T, D) of whole target prefixes, from the output and mask that ``encode`` returned.

        Raises ValueError if a target is longer than a learned position table.
        """
        memories = project_memories([layer.cross for layer in self.decoder], memory_BSD)
        x_BTD = self.embed(target_BT, self.target_embedding, self.target_positions, start=0)
        # Padding is at the end of a target, so the causal mask hides it from all real pieces.
        self_mask = PaddedMask(causal=True)
        cross_mask = PaddedMask(mask_B11S)
        for layer, memory in zip(self.decoder, memories, strict=True):
            x_BTD = layer(x_BTD, memory, self_mask, cross_mask)
        return self.decoder_norm(x_BTD)

    def logits(self, hidden_BTD: Tensor) -> Tensor:
        """Return logits (§3.4): (B, T, N)."""
        return linear(hidden_BTD, self.output_ND, self.output_bias_N)

    def embed(self, pieces: Tensor, embedding_ND: Tensor, positions: Positions, start: int | Tensor) -> Tensor:
        """Multiply embeddings by sqrt(d_model) (§3.4), add positions (§3.5), and apply dropout to the sum (§5.4).

        ``scale_embeddings=False`` omits the factor."""
        x = F.embedding(pieces, embedding_ND) * self.embedding_scale
        out = self.drop(positions(x, start))
        return out if self.residual_dtype is None else out.to(self.residual_dtype)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Initialise all matrices, and embeddings so that they have unit variance after their scaling.

        The paper specifies no initialisation; ``glorot`` is the one of the official code. Parts of fused matrices are
        initialised like the separate matrices of the paper.
        """
        for module in self.modules():
            if isinstance(module, nn.Linear):
                self.init_matrix(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        for module in self.modules():
            if isinstance(module, SelfAttention):
                for part in torch.split(module.query_keys_values.weight, module.widths):
                    self.init_matrix(part)
            if isinstance(module, CrossAttention):
                for part in torch.split(module.keys_values.weight, module.widths[1:]):
                    self.init_matrix(part)
        small = self.config.d_model**-0.5
        unscaled = not self.config.scale_embeddings and not self.config.tied
        for name, parameter in self.named_parameters():
            last = name.rsplit(".")[-1]
            if last in ("target_embedding", "source_embedding", "table"):
                nn.init.normal_(parameter, std=1.0 if unscaled else small)
            if last == "projection":
                nn.init.normal_(parameter, std=small)
        if self.config.positions == "learned_sinusoid":
            for positions in (self.source_positions, self.target_positions):
                positions.table.copy_(sinusoid(*positions.table.shape))

    def init_matrix(self, matrix: Tensor) -> None:
        if self.config.init == "glorot":
            nn.init.xavier_uniform_(matrix)
        else:
            nn.init.normal_(matrix, std=self.config.d_model**-0.5)


def sinusoid(positions: int, d_model: int) -> Tensor:
    """Return sin(pos / 10000^(2i / d_model)) in even columns and cos in odd columns (§3.5): (positions, d_model)."""
    angles = torch.arange(positions)[:, None] / 10_000 ** (torch.arange(0, d_model, 2) / d_model)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)
