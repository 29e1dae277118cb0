"""The attention-coverage loss: it is lowest if all source positions receive the same total attention.

For one sentence and one layer, p(s) is the mean over queries and heads of the attention weights on source position s,
and H(p) = -sum p log p is its entropy. With S source positions the loss is

    (1 - H(p) / log S) ** 2

The loss is 0 if all positions receive the same attention, and 1 if all queries attend to one position. A sentence of
one position has loss 0. Padding is neither a query nor a position. The queries of the encoder's self-attention are the
source positions; the queries of the cross-attention are the target positions.

This is the entropy of the mean, not the mean of the entropies: a diagonal, where each query attends to one position and
each position is attended to once, has loss 0.

Shape suffixes are the same as in ``model.network.attention``; N sentences, including empty ones.
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
    """The weighted sum of the losses of the encoder's self-attention and the cross-attention; weight 0: no loss.

    Each loss is a mean over layers. Each sentence is weighted by its number of target pieces, so that the sum over all
    batches of an update, divided by the update's pieces, does not depend on the split into batches.
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
        """Collect the weighted loss of each attention during a forward pass over ``batch`` in the block."""
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
    """Return each sentence's number of target pieces to predict (N) and of source positions (N)."""
    if batch.packing is None:
        return (batch.target != PAD).sum(1), (batch.source != PAD).sum(1)
    predicted_NT = batch.packing.target.to_padded(batch.labels != PAD)
    return predicted_NT.sum(1), batch.packing.source.cu_seqlens.diff()


def attention_marginal(attention: nn.Module, inputs: tuple[Any, ...], batch: Batch) -> Tensor:
    """Return the marginal (N, S) of an encoder's attention, or a cross-attention, for the inputs of its forward."""
    assert isinstance(attention, SelfAttention | CrossAttention)
    weights = attention.weights(*inputs)
    mask = inputs[-1]
    if isinstance(mask, PackedMask):
        return marginal(weights, mask.queries.valid_positions())
    queries = batch.source if isinstance(attention, SelfAttention) else batch.target
    return marginal(weights, queries != PAD)


def marginal(weights_BHTS: Tensor, real_BT: Tensor) -> Tensor:
    """Return the mean of the weights over heads and over the queries that are not padding: (B, S).

    Each row sums to 1; the row of an empty sentence is 0.
    """
    weights_BTS = weights_BHTS.mean(1) * real_BT[:, :, None]
    return weights_BTS.sum(1) / real_BT.sum(1, keepdim=True).clamp_min(1)


def normalised_entropy(marginal_BS: Tensor, positions_B: Tensor) -> Tensor:
    """Return H(p) / log S of each marginal with S = ``positions_B``: (B), from 0 to 1; 1 if S is 1 or 0."""
    p_BS = marginal_BS.to(torch.promote_types(marginal_BS.dtype, torch.float32))
    # A position with p = 0 adds 0 to the entropy, but log 0 has no finite gradient.
    entropy_B = -(p_BS * p_BS.clamp_min(torch.finfo(p_BS.dtype).tiny).log()).sum(1)
    return torch.where(positions_B > 1, entropy_B / positions_B.to(p_BS).clamp_min(2).log(), 1.0)


def coverage_loss(marginal_BS: Tensor, positions_B: Tensor) -> Tensor:
    """Return (1 - H(p) / log S) ** 2 of each sentence: (B)."""
    return (1 - normalised_entropy(marginal_BS, positions_B)).square()
