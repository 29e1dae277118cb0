"""The attention-coverage loss: every source position should receive the same attention from all queries together.

For one sentence and one layer, p(s) is the mean over queries and heads of the attention weights on source position s,
and H(p) = -sum p log p is its entropy. With S source positions the loss is

    (1 - H(p) / log S) ** 2

0 where all positions receive the same attention, 1 where all queries look at one position. A sentence of one position
has loss 0. Padding is neither a query nor a position. The queries of the encoder's self-attention are the source
positions, those of the cross-attention the target positions.

This is the entropy of the mean, not the mean of the entropies: a diagonal, where each query looks at one position and
each position is looked at once, has loss 0.

Shape suffixes are those of ``model.network.attention``; N sentences, empty ones included.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ..config.special_pieces import PAD
from ..data.batch import Batch
from ..network.attention import CrossAttention, PackedMask, SelfAttention
from ..network.transformer import Transformer


class CoverageLoss:
    """The loss of the encoder's self-attention and of the cross-attention, each with its weight; 0 leaves one out.

    Each is a mean over layers, and over sentences by their target pieces: summed over a batch and divided by its
    pieces it does not depend on how an update is split into batches.
    """

    def __init__(self, transformer: Transformer, encoder: float, cross: float) -> None:
        self.attentions: list[tuple[nn.Module, float]] = []
        for attentions, weight in (
            ([layer.attention for layer in transformer.encoder], encoder),
            ([layer.cross for layer in transformer.decoder], cross),
        ):
            self.attentions += [(attention, weight / len(attentions)) for attention in attentions if weight]

    @contextmanager
    def record(self, batch: Batch) -> Iterator[list[Tensor]]:
        """Collect the weighted loss of each attention that a forward pass over ``batch`` computes in the block."""
        terms: list[Tensor] = []
        pieces_N, positions_N = sentence_sizes(batch)

        def add(weight: float, attention: nn.Module, inputs: tuple[Any, ...]) -> None:
            loss_N = coverage_loss(attention_marginal(attention, inputs, batch), positions_N)
            terms.append(weight * (loss_N * pieces_N).sum())

        with ExitStack() as hooks:
            for attention, weight in self.attentions:
                hooks.enter_context(attention.register_forward_pre_hook(partial(add, weight)))
            yield terms


def sentence_sizes(batch: Batch) -> tuple[Tensor, Tensor]:
    """For each sentence of a batch its target pieces to predict (N) and its source positions (N)."""
    if batch.packing is None:
        return (batch.target != PAD).sum(1), (batch.source != PAD).sum(1)
    predicted_NT = batch.packing.target.to_padded(batch.labels != PAD)
    return predicted_NT.sum(1), batch.packing.source.cu_seqlens.diff()


def attention_marginal(attention: nn.Module, inputs: tuple[Any, ...], batch: Batch) -> Tensor:
    """The marginal (N, S) of an attention of the encoder, or of a cross-attention, for the inputs of its forward."""
    assert isinstance(attention, SelfAttention | CrossAttention)
    weights = attention.weights(*inputs)
    mask = inputs[-1]
    if isinstance(mask, PackedMask):
        return marginal(weights, mask.queries.valid_positions())
    queries = batch.source if isinstance(attention, SelfAttention) else batch.target
    return marginal(weights, queries != PAD)


def marginal(weights_BHTS: Tensor, real_BT: Tensor) -> Tensor:
    """Mean of the weights over heads and over the queries that are no padding: (B, S).

    Each row sums to 1; that of an empty sentence is 0.
    """
    weights_BTS = weights_BHTS.mean(1) * real_BT[:, :, None]
    return weights_BTS.sum(1) / real_BT.sum(1, keepdim=True).clamp_min(1)


def normalised_entropy(marginal_BS: Tensor, positions_B: Tensor) -> Tensor:
    """H(p) / log S of each marginal over its S = ``positions_B`` positions: (B), from 0 to 1; 1 where S is 1 or 0."""
    p_BS = marginal_BS.to(torch.promote_types(marginal_BS.dtype, torch.float32))
    # A position that receives 0 adds 0 to the entropy, but its logarithm has no gradient.
    entropy_B = -(p_BS * p_BS.clamp_min(torch.finfo(p_BS.dtype).tiny).log()).sum(1)
    return torch.where(positions_B > 1, entropy_B / positions_B.to(p_BS).clamp_min(2).log(), 1.0)


def coverage_loss(marginal_BS: Tensor, positions_B: Tensor) -> Tensor:
    """(1 - H(p) / log S) ** 2 of each sentence: (B)."""
    return (1 - normalised_entropy(marginal_BS, positions_B)).square()
