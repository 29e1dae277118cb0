"""The decoder during a search: computes the logits of the next target position for every row.

With few rows, the call of an operation costs more time than its computation. So this module calls operations directly,
prepares once the tensors that no step changes, and stores the keys and values of all layers in one buffer. The results
are those of ``Transformer.decode``.

Shape suffixes:
    B sentences     R target rows, W for each sentence     S source positions     T target positions so far
    P target positions that fit into a buffer     L layers     D d_model     H heads     K d_k     V d_v
    X keys and values of all heads side by side, H * (K + V)
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..config.keying import require
from ..network.attention import KeysValues, PaddedMask, Widths
from ..network.linear import wide_product, without_gradient, without_gradient_in_bfloat16
from ..network.reference import Reference
from ..network.transformer import DecoderLayer, Residual, Transformer
from .beam_search import IncrementalDecoder

MIN_POSITIONS = 32
"""Minimum number of positions that fit into a buffer."""
ALL_VISIBLE = PaddedMask()
Function = Callable[[Tensor], Tensor]
DecoderStarter = Callable[[Tensor], IncrementalDecoder]
"""Starts a model's decoder over padded sources (B, S) with special tokens."""


def decoder_starter(model: Transformer, bfloat16: bool = False) -> DecoderStarter:
    """Prepare a model for any number of searches; the model must not change afterwards.

    ``bfloat16`` is ``decoding.precision`` bf16. Raises ValueError if it is true and the model has torch's layers.
    """
    if isinstance(model, Reference):
        require(not bfloat16, "decoding.precision", "bf16", "fp32 or tf32 where model.attention is torch")
        return partial(PrefixDecoder, model)
    return partial(CachedDecoder, DecoderWeights(model, bfloat16))


class DecoderWeights:
    """A model's decoder as functions of tensors, with copies of large matrices in the layout of their library."""

    @torch.inference_mode()
    def __init__(self, model: Transformer, bfloat16: bool = False) -> None:
        self.model = model
        self.scale = model.embedding_scale
        self.bfloat16 = bfloat16
        self.layers = [LayerWeights(layer, bfloat16) for layer in model.decoder]
        self.widths = model.decoder[0].attention.head_widths
        self.norm = normalisation(model.decoder_norm)
        self.project = (wide_product if bfloat16 else without_gradient)(model.output_ND, model.output_bias_N)


class CachedDecoder:
    """An ``IncrementalDecoder`` with a key-value cache: each target position is computed once."""

    @torch.inference_mode()
    def __init__(self, weights: DecoderWeights, source_BS: Tensor) -> None:
        self.weights = weights
        self.model = weights.model
        with torch.autocast(source_BS.device.type, torch.bfloat16) if weights.bfloat16 else nullcontext():
            memory_BSD, mask_B11S = self.model.encode(source_BS)
            self.memories = [layer.cross.project_memory(memory_BSD) for layer in self.model.decoder]
        self.cross_mask = PaddedMask(mask_B11S)
        self.past = PastKeysValues(weights.widths, self.memories)

    def advance(self, pieces_R: Tensor) -> Tensor:
        position = self.past.length
        positions = self.model.target_positions
        positions.ensure_length(position + 1)
        x_RD = F.embedding(pieces_R, self.model.target_embedding) * self.weights.scale + positions.table[position]
        self.past.extend(len(pieces_R))
        for layer, past, memory in zip(self.weights.layers, self.past.layers, self.memories, strict=True):
            x_RD = layer.step(x_RD, past, position, memory, self.cross_mask)
        return self.weights.project(self.weights.norm(x_RD))

    def reorder(self, rows_R: Tensor) -> None:
        self.past.reorder(rows_R)

    def keep_sentences(self, sentences_B: Tensor) -> None:
        self.memories = [tuple(x.index_select(0, sentences_B) for x in memory) for memory in self.memories]
        if self.cross_mask.mask is not None:
            self.cross_mask = PaddedMask(self.cross_mask.mask[sentences_B])


class LayerPast(NamedTuple):
    """A layer's part of the buffer: ``written`` (P, R, X), and views of it, (R, H, P, K) and (R, H, P, V)."""

    written: Tensor
    keys: Tensor
    values: Tensor

    def append(self, values_RX: Tensor, position: int) -> KeysValues:
        """Write the keys and values of a position; return those so far, (R, H, T, K) and (R, H, T, V)."""
        self.written[position].copy_(values_RX)
        return self.keys.narrow(2, 0, position + 1), self.values.narrow(2, 0, position + 1)


class LayerWeights:
    """A ``DecoderLayer`` as functions of tensors that compute one position of every row."""

    def __init__(self, layer: DecoderLayer, bfloat16: bool) -> None:
        prepare = without_gradient_in_bfloat16 if bfloat16 else without_gradient

        def dense(linear: nn.Linear) -> Function:
            return prepare(linear.weight, linear.bias)

        self.heads, self.d_k, _ = layer.attention.head_widths
        self.query_keys_values = dense(layer.attention.query_keys_values)
        self.out = dense(layer.attention.out)
        self.cross_query = dense(layer.cross.query)
        self.cross_out = dense(layer.cross.out)
        self.inner = dense(layer.feed_forward.inner)
        self.outer = dense(layer.feed_forward.outer)
        self.around_attention = residual(layer.around_attention)
        self.around_cross = residual(layer.around_cross)
        self.around_feed_forward = residual(layer.around_feed_forward)

    def step(self, x_RD: Tensor, past: LayerPast, position: int, memory: KeysValues, cross_mask: PaddedMask) -> Tensor:
        """Return the layer's output (R, D) at a position."""
        x_RD = self.around_attention(x_RD, lambda x: self.attend_past(x, past, position))
        x_RD = self.around_cross(x_RD, lambda x: self.attend_source(x, memory, cross_mask))
        return self.around_feed_forward(x_RD, lambda x: self.outer(self.inner(x).relu_()))

    def attend_past(self, x_RD: Tensor, past: LayerPast, position: int) -> Tensor:
        joined = self.query_keys_values(x_RD)
        width = self.heads * self.d_k
        k_RHTK, v_RHTV = past.append(joined[:, width:], position)
        q_RH1K = joined[:, :width].view(-1, self.heads, 1, self.d_k)
        return self.out(ALL_VISIBLE.attend(q_RH1K, k_RHTK, v_RHTV, 0.0)[:, 0])

    def attend_source(self, x_RD: Tensor, memory: KeysValues, cross_mask: PaddedMask) -> Tensor:
        """Attend to the source; the rows of a sentence are the queries."""
        k_BHSK, v_BHSV = memory
        q_BHWK = self.cross_query(x_RD).view(len(k_BHSK), -1, self.heads, self.d_k).transpose(1, 2)
        return self.cross_out(cross_mask.attend(q_BHWK, k_BHSK, v_BHSV, 0.0).flatten(0, 1))


class PastKeysValues:
    """Keys and values of the target positions so far, of all layers, in one buffer (P, R, L, X) with spare positions.

    Positions come first, so that a step writes one contiguous part and a reordering copies whole rows of all layers.
    """

    def __init__(self, widths: Widths, memories: Sequence[KeysValues]) -> None:
        """``memories`` are the keys and values of the sources; the buffer gets their number type and device."""
        self.length = 0
        """Number of positions, including the one that the current step writes."""
        self.widths = widths
        self.number = len(memories)
        self.like = memories[0][0]
        self.buffer, self.layers = self.new_buffer(0, 0)
        self.spare: tuple[Tensor, list[LayerPast]] | None = None

    def extend(self, rows: int) -> None:
        """Add a position of ``rows`` rows; the layers then write its values."""
        if self.length == len(self.buffer):
            past = self.buffer
            self.spare = None
            self.buffer, self.layers = self.new_buffer(max(MIN_POSITIONS, 2 * self.length), rows)
            if self.length:
                self.buffer[: self.length] = past
        self.length += 1

    def reorder(self, rows_R: Tensor) -> None:
        """Replace row i by the previous row ``rows_R[i]``; the number of rows may change."""
        if self.spare is None or self.spare[0].shape[1] != len(rows_R):
            self.spare = self.new_buffer(len(self.buffer), len(rows_R))
        torch.index_select(self.buffer[: self.length], 1, rows_R, out=self.spare[0][: self.length])
        (self.buffer, self.layers), self.spare = self.spare, (self.buffer, self.layers)

    def new_buffer(self, positions: int, rows: int) -> tuple[Tensor, list[LayerPast]]:
        """Create a buffer without values; return it and the part of each layer."""
        heads, d_k, d_v = self.widths
        buffer = self.like.new_empty(positions, rows, self.number, heads * (d_k + d_v))
        layers = []
        for written_PRX in buffer.unbind(2):
            k_PRHK = written_PRX[..., : heads * d_k].view(positions, rows, heads, d_k)
            v_PRHV = written_PRX[..., heads * d_k :].view(positions, rows, heads, d_v)
            layers.append(LayerPast(written_PRX, k_PRHK.permute(1, 2, 0, 3), v_PRHV.permute(1, 2, 0, 3)))
        return buffer, layers


class PrefixDecoder:
    """An ``IncrementalDecoder`` over torch's layers, which have no cache: each step computes the whole prefix."""

    @torch.inference_mode()
    def __init__(self, model: Reference, source_BS: Tensor) -> None:
        self.model = model
        self.memory_RSD, self.mask_R11S = model.encode(source_BS)
        self.seen_RT = source_BS.new_empty(len(source_BS), 0)

    def advance(self, pieces_R: Tensor) -> Tensor:
        self.seen_RT = torch.cat([self.seen_RT, pieces_R[:, None]], dim=1)
        return self.model.logits(self.model.decode(self.seen_RT, self.memory_RSD, self.mask_R11S)[:, -1])

    def reorder(self, rows_R: Tensor) -> None:
        self.seen_RT = self.seen_RT[rows_R]
        self.memory_RSD = self.memory_RSD[rows_R]
        self.mask_R11S = self.mask_R11S[rows_R]

    def keep_sentences(self, sentences_B: Tensor) -> None:
        """Do nothing: ``reorder`` follows, and its rows are those of the kept sentences."""


def normalisation(norm: nn.Module) -> Function:
    """Return a LayerNorm or Identity as a function."""
    if not isinstance(norm, nn.LayerNorm):
        return norm
    arguments = (norm.normalized_shape, norm.weight, norm.bias, norm.eps)
    return lambda x: torch.layer_norm(x, *arguments)


def residual(around: Residual) -> Callable[[Tensor, Function], Tensor]:
    """Return a residual connection with norm as a function, without dropout."""
    norm = normalisation(around.norm)
    if around.pre:
        return lambda x, sublayer: x + sublayer(norm(x))
    return lambda x, sublayer: norm(x + sublayer(x))
