"""The Transformer (§3): pieces of a source sentence and of a target prefix in, hidden states or logits out.

It knows nothing of text, batches, loss or search. One ``decode`` serves training (a whole target at once) and
search (one piece at a time with a ``Cache``).

Shape suffixes:
    B sentences     R target rows: B, or B times the beam     S source positions     T target positions
    P target positions seen so far (past and present)         D d_model              H heads
    K d_k           V d_v           F d_ff                     N vocabulary           L layers

Pieces: 0 pads, 1 begins, 2 ends, 3 is unknown. A source ends with eos; a decoder reads bos … and writes … eos.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.bpe import PAD
from model.config import Model
from model.dropout import Dropout
from model.fields import require

KeysValues = tuple[Tensor, Tensor]
"""Keys (…, H, positions, K) and values (…, H, positions, V) of one attention."""


@dataclass
class Cache:
    """What a search remembers between steps: cross-attention once per source, self-attention growing.

    ``cross`` and ``own`` hold one pair of keys and values a layer: (B, H, S, K or V) and (R, H, P, K or V). R is a
    multiple of B: row r belongs to source r // (R // B), so beams of a source share its keys and values.
    """

    source_mask_B11S: Tensor | None
    cross: list[KeysValues]
    own: list[KeysValues]

    @property
    def length(self) -> int:
        """Target positions seen so far."""
        return self.own[0][0].shape[2] if self.own else 0

    def reorder(self, rows_R: Tensor) -> None:
        """Let row i go on from what row ``rows_R[i]`` has seen (beams change; there may be more rows or fewer)."""
        self.own = [(keys[rows_R], values[rows_R]) for keys, values in self.own]

    def keep_sources(self, sources_B: Tensor) -> None:
        """Keep only these sources' cross-attention, in this order; ``reorder`` the rows to match."""
        self.cross = [(keys[sources_B], values[sources_B]) for keys, values in self.cross]
        if self.source_mask_B11S is not None:
            self.source_mask_B11S = self.source_mask_B11S[sources_B]


class Attention(nn.Module):
    """What both attentions share (§3.2): softmax(Q K^T / sqrt(d_k)) V in ``heads`` subspaces, joined and projected.

    W^Q, W^K and W^V have no bias, as in the paper: the softmax does not see a bias of the keys, so its gradient
    would be rounding alone, which Adam scales up to full steps.
    """

    def __init__(self, config: Model) -> None:
        super().__init__()
        self.heads, self.d_k, self.p_drop = config.heads, config.d_k, config.p_drop_attention
        self.widths = [config.heads * config.d_k, config.heads * config.d_k, config.heads * config.d_v]
        self.out = nn.Linear(config.heads * config.d_v, config.d_model)

    def split(self, x_BTX: Tensor) -> Tensor:
        """(B, T, H * width) to (B, H, T, width)."""
        return x_BTX.view(*x_BTX.shape[:2], self.heads, -1).transpose(1, 2)

    def attend(self, q_BHTK: Tensor, k_BHSK: Tensor, v_BHSV: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
        """Scaled dot-product attention (§3.2.1), heads joined and projected: (B, T, D). ``mask`` is true where seen."""
        p_drop = self.p_drop if self.training else 0.0
        x_BHTV = F.scaled_dot_product_attention(q_BHTK, k_BHSK, v_BHSV, mask, p_drop, causal)
        out: Tensor = self.out(x_BHTV.transpose(1, 2).flatten(2))
        return out


class SelfAttention(Attention):
    """Queries, keys and values from one input, so their three matrices are one product (§3.2.3)."""

    def __init__(self, config: Model) -> None:
        super().__init__(config)
        self.query_keys_values = nn.Linear(config.d_model, sum(self.widths), bias=False)

    def forward(
        self, x_BTD: Tensor, mask_B11S: Tensor | None, causal: bool, past: KeysValues | None
    ) -> tuple[Tensor, KeysValues]:
        """The attended input (B, T, D), and the keys and values of past and present positions."""
        q, k, v = (self.split(x) for x in self.query_keys_values(x_BTD).split(self.widths, dim=-1))
        if past is None:
            return self.attend(q, k, v, mask_B11S, causal), (k, v)
        k, v = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)
        # A single new position sees all; several see the past and each other up to themselves.
        steps, seen = q.shape[2], k.shape[2]
        mask_TP = torch.ones(steps, seen, dtype=torch.bool, device=k.device).tril(seen - steps) if steps > 1 else None
        return self.attend(q, k, v, mask_TP, causal=False), (k, v)


class CrossAttention(Attention):
    """Queries from the decoder, keys and values from the encoder's output (§3.2.3)."""

    def __init__(self, config: Model) -> None:
        super().__init__(config)
        self.query = nn.Linear(config.d_model, self.widths[0], bias=False)
        self.keys_values = nn.Linear(config.d_model, sum(self.widths[1:]), bias=False)

    def remember(self, memory_BSD: Tensor) -> KeysValues:
        """Keys and values: once per source, whatever the number of target steps."""
        k, v = self.keys_values(memory_BSD).split(self.widths[1:], dim=-1)
        return self.split(k), self.split(v)

    def forward(self, x_RTD: Tensor, memory: KeysValues, mask_B11S: Tensor | None) -> Tensor:
        """R rows over B sources: beams of one source become further queries of that source."""
        return self.attend(self.queries(x_RTD, memory), *memory, mask_B11S, causal=False).view_as(x_RTD)

    def weights(self, x_RTD: Tensor, memory: KeysValues, mask_B11S: Tensor | None) -> Tensor:
        """What ``forward`` weighs the values with: (B, H, R // B * T, S), each row summing to 1."""
        scores = self.queries(x_RTD, memory) @ memory[0].transpose(-1, -2) / math.sqrt(self.d_k)
        return (scores if mask_B11S is None else scores.masked_fill(~mask_B11S, -math.inf)).softmax(-1)

    def queries(self, x_RTD: Tensor, memory: KeysValues) -> Tensor:
        q_RTX = self.query(x_RTD)
        return self.split(q_RTX.reshape(memory[0].shape[0], -1, q_RTX.shape[-1]))


class FeedForward(nn.Module):
    """max(0, x W1 + b1) W2 + b2 (§3.3)."""

    def __init__(self, config: Model) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(config.d_model, config.d_ff), nn.Linear(config.d_ff, config.d_model)
        self.drop = Dropout(config.p_drop_relu)

    def forward(self, x_BTD: Tensor) -> Tensor:
        out: Tensor = self.outer(self.drop(F.relu(self.inner(x_BTD))))
        return out


class Residual(nn.Module):
    """A sublayer's surroundings: LayerNorm(x + Dropout(f(x))) as the paper has it (§3.1, §5.4), or pre-LN."""

    def __init__(self, config: Model) -> None:
        super().__init__()
        self.norm, self.drop = nn.LayerNorm(config.d_model), Dropout(config.p_drop)
        self.pre = config.norm == "pre"

    def forward(self, x_BTD: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        if self.pre:
            out: Tensor = x_BTD + self.drop(sublayer(self.norm(x_BTD)))
        else:
            out = self.norm(x_BTD + self.drop(sublayer(x_BTD)))
        return out


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward (§3.1)."""

    def __init__(self, config: Model) -> None:
        super().__init__()
        self.attention, self.around_attention = SelfAttention(config), Residual(config)
        self.feed_forward, self.around_feed_forward = FeedForward(config), Residual(config)

    def forward(self, x_BSD: Tensor, mask_B11S: Tensor | None) -> Tensor:
        x_BSD = self.around_attention(x_BSD, lambda x: self.attention(x, mask_B11S, causal=False, past=None)[0])
        out: Tensor = self.around_feed_forward(x_BSD, self.feed_forward)
        return out


class DecoderLayer(nn.Module):
    """Masked self-attention, attention over the encoder's output, feed-forward (§3.1)."""

    def __init__(self, config: Model) -> None:
        super().__init__()
        self.attention, self.around_attention = SelfAttention(config), Residual(config)
        self.cross, self.around_cross = CrossAttention(config), Residual(config)
        self.feed_forward, self.around_feed_forward = FeedForward(config), Residual(config)

    def forward(
        self, x_RTD: Tensor, memory: KeysValues, mask_B11S: Tensor | None, past: KeysValues | None
    ) -> tuple[Tensor, KeysValues]:
        """The layer's output (R, T, D), and its self-attention's keys and values of past and present positions."""
        own: list[KeysValues] = []

        def attend(x: Tensor) -> Tensor:
            # Padding lies at the end of a target, so the causal mask hides it from every piece that counts.
            attended, keys_values = self.attention(x, None, causal=True, past=past)
            own.append(keys_values)
            return attended  # type: ignore[no-any-return]

        x_RTD = self.around_attention(x_RTD, attend)
        x_RTD = self.around_cross(x_RTD, lambda x: self.cross(x, memory, mask_B11S))
        return self.around_feed_forward(x_RTD, self.feed_forward), own[0]


class Positions(nn.Module):
    """Adds the position to each embedding: sines and cosines (§3.5) or a learned table (Table 3, row E)."""

    table: Tensor

    def __init__(self, config: Model) -> None:
        super().__init__()
        self.learned = config.positions == "learned"
        if self.learned:
            self.table = nn.Parameter(torch.empty(config.max_positions, config.d_model))
        else:
            self.register_buffer("table", sinusoid(config.max_positions, config.d_model), persistent=False)

    def forward(self, x_BTD: Tensor, start: int) -> Tensor:
        end = start + x_BTD.shape[1]
        if end > self.table.shape[0]:
            require(not self.learned, "position", end, f"up to model.max_positions, {self.table.shape[0]}")
            self.table = sinusoid(2 * end, x_BTD.shape[2]).to(self.table)
        return x_BTD + self.table[start:end]


class Transformer(nn.Module):
    """Encoder and decoder stacks with their embeddings (Figure 1).

    ``tied`` shares one matrix between both embeddings and the projection before the softmax (§3.4), which needs one
    joint vocabulary: ValueError when the sizes differ.
    """

    encoder: Sequence[EncoderLayer]
    decoder: Sequence[DecoderLayer]

    def __init__(self, config: Model, source_size: int, target_size: int) -> None:
        super().__init__()
        if config.tied:
            require(
                source_size == target_size, "target_size", target_size, f"{source_size} (model.tied: one vocabulary)"
            )
        self.config, self.source_size, self.target_size = config, source_size, target_size
        self.target_embedding = nn.Parameter(torch.empty(target_size, config.d_model))
        if not config.tied:
            self.source_embedding = nn.Parameter(torch.empty(source_size, config.d_model))
            self.projection = nn.Parameter(torch.empty(target_size, config.d_model))
        self.source_positions, self.target_positions = Positions(config), Positions(config)
        self.drop = Dropout(config.p_drop)
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.layers))  # type: ignore[assignment]
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.layers))  # type: ignore[assignment]
        # Pre-LN leaves the sum of all sublayers unnormed at the top of a stack; post-LN ends in a norm already.
        final = nn.LayerNorm if config.norm == "pre" else nn.Identity
        self.encoder_norm, self.decoder_norm = final(config.d_model), final(config.d_model)
        self.initialise()

    @property
    def output_ND(self) -> Tensor:
        """The matrix before the softmax, (N, D)."""
        return self.target_embedding if self.config.tied else self.projection

    def forward(self, source_BS: Tensor, target_BT: Tensor) -> Tensor:
        """Hidden states (B, T, D) of a whole target prefix (bos …); ``logits`` makes scores of them."""
        memory_BSD, mask_B11S = self.encode(source_BS)
        return self.decode(target_BT, self.start_cache(memory_BSD, mask_B11S))

    def encode(self, source_BS: Tensor) -> tuple[Tensor, Tensor | None]:
        """The encoder's output (B, S, D) and where it is real (B, 1, 1, S); None: nothing is padding."""
        mask_B11S: Tensor | None = (source_BS != PAD)[:, None, None, :]
        # On a GPU the question would make the host wait for the device; there the mask is always passed on.
        if mask_B11S is not None and mask_B11S.device.type == "cpu" and bool(mask_B11S.all()):
            mask_B11S = None
        embedding_ND = self.target_embedding if self.config.tied else self.source_embedding
        x_BSD = self.embed(source_BS, embedding_ND, self.source_positions, start=0)
        for layer in self.encoder:
            x_BSD = layer(x_BSD, mask_B11S)
        return self.encoder_norm(x_BSD), mask_B11S

    def start_cache(self, memory_BSD: Tensor, mask_B11S: Tensor | None) -> Cache:
        """Keys and values of every layer's cross-attention, and no target position seen yet."""
        return Cache(mask_B11S, [layer.cross.remember(memory_BSD) for layer in self.decoder], [])

    def decode(self, target_RT: Tensor, cache: Cache) -> Tensor:
        """Hidden states (R, T, D) of the next T target pieces, which ``cache`` then has seen.

        R is B, or a multiple of it (see ``Cache``). ValueError where a learned position table ends.
        """
        x_RTD = self.embed(target_RT, self.target_embedding, self.target_positions, start=cache.length)
        past: list[KeysValues] | list[None] = cache.own or [None] * len(self.decoder)
        own: list[KeysValues] = []
        for layer, memory, seen in zip(self.decoder, cache.cross, past, strict=True):
            x_RTD, now = layer(x_RTD, memory, cache.source_mask_B11S, seen)
            own.append(now)
        cache.own = own
        out: Tensor = self.decoder_norm(x_RTD)
        return out

    def logits(self, hidden_RTD: Tensor) -> Tensor:
        """Scores before the softmax (§3.4): (R, T, N)."""
        return F.linear(hidden_RTD, self.output_ND)

    @torch.no_grad()
    def cross_attention(self, source_BS: Tensor, target_BT: Tensor) -> Tensor:
        """Weights of every layer's and head's cross-attention, (L, B, H, T, S): for pictures."""
        weights: list[Tensor] = []

        def look(cross: nn.Module, inputs: tuple[Tensor, KeysValues, Tensor | None]) -> None:
            assert isinstance(cross, CrossAttention)
            weights.append(cross.weights(*inputs))

        hooks = [layer.cross.register_forward_pre_hook(look) for layer in self.decoder]
        try:
            self.forward(source_BS, target_BT)
        finally:
            for hook in hooks:
                hook.remove()
        return torch.stack(weights)

    def embed(self, pieces_BT: Tensor, embedding_ND: Tensor, positions: Positions, start: int) -> Tensor:
        """Embeddings times sqrt(d_model) (§3.4), plus positions (§3.5), with dropout on the sum (§5.4)."""
        x_BTD = F.embedding(pieces_BT, embedding_ND) * math.sqrt(self.config.d_model)
        out: Tensor = self.drop(positions(x_BTD, start))
        return out

    @torch.no_grad()
    def initialise(self) -> None:
        """Embeddings N(0, 1/d_model), so that times sqrt(d_model) they have unit variance, and matrices as configured.

        The paper names no initialisation: ``glorot`` is the official code's. Matrices that are fused for speed are
        drawn as the separate matrices that they are on paper.
        """
        for module in self.modules():
            if isinstance(module, nn.Linear):
                self.draw(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        for module in self.modules():
            if isinstance(module, SelfAttention):
                for part in torch.split(module.query_keys_values.weight, module.widths):
                    self.draw(part)
            if isinstance(module, CrossAttention):
                for part in torch.split(module.keys_values.weight, module.widths[1:]):
                    self.draw(part)
        for name, parameter in self.named_parameters():
            if name.rsplit(".")[-1] in ("target_embedding", "source_embedding", "projection", "table"):
                nn.init.normal_(parameter, std=self.config.d_model**-0.5)

    def draw(self, matrix: Tensor) -> None:
        if self.config.init == "glorot":
            nn.init.xavier_uniform_(matrix)
        else:
            nn.init.normal_(matrix, std=self.config.d_model**-0.5)


def sinusoid(positions: int, d_model: int) -> Tensor:
    """sin(pos / 10000^(2i / d_model)) in even columns, cos in odd ones (§3.5): (positions, d_model)."""
    angles = torch.arange(positions)[:, None] / 10_000 ** (torch.arange(0, d_model, 2) / d_model)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)
