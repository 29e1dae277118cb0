"""Packs pairs end to end into batches of one constant size with almost no padding.

Every batch fills the same ``BatchShape``, so that torch.compile compiles one shape. Unused space at the end of a side
becomes padding sentences, so that no token of a pair attends to padding and no sentence is too long.
"""

from dataclasses import dataclass

import numpy as np
import torch

from ..config import SourceEnds, TargetEnds
from ..config.special_pieces import BOS, EOS, PAD
from ..network.attention import SequenceOffsets
from ..network.transformer import Packing
from .batch import Batch
from .ends import rows_before_last_eos, rows_with_ends
from .shards import Array, Shards

SIZE_MULTIPLE = 64
"""Sizes are multiples of this number, for the tensor cores of a GPU."""
SLACK = 1.01
"""Factor for the shorter side's share of the corpus, because batches differ from the average."""
MIN_PADDING = 8
"""Pieces of each side that are reserved for padding sentences; each of them needs a source and a target."""


@dataclass(frozen=True)
class BatchShape:
    """The capacity of a batch: pieces of each side (with special tokens), sentences, and the longest sentence."""

    source: int
    target: int
    sentences: int
    longest_source: int
    longest_target: int

    @property
    def pieces(self) -> tuple[int, int]:
        """Pieces that pairs may fill; the rest holds padding sentences, each with a source and a target."""
        return self.source - MIN_PADDING, self.target - MIN_PADDING


def batch_shape_for(source: Array, target: Array, budget: int) -> BatchShape:
    """Return the shape of batches of ``budget`` pieces per side for pairs of these lengths.

    The side with more pieces in the corpus gets the whole budget; the other side gets its proportional share times
    ``SLACK``.
    """
    shares = np.array([source.sum(), target.sum()]) / max(source.sum(), target.sum())
    sides = [int(min(budget, np.ceil(budget * share * SLACK))) for share in shares]
    pairs = budget * len(source) / max(source.sum(), target.sum())
    longest_source = int(source.max())
    longest_target = int(target.max())
    return BatchShape(
        source=round_up(max(sides[0], longest_source) + MIN_PADDING),
        target=round_up(max(sides[1], longest_target) + MIN_PADDING),
        sentences=round_up(int(1.25 * pairs) + MIN_PADDING),
        longest_source=longest_source,
        longest_target=longest_target,
    )


def round_up(size: int) -> int:
    return -(-size // SIZE_MULTIPLE) * SIZE_MULTIPLE


def load_packed(
    shards: Shards, rows: Array, shape: BatchShape, source_ends: SourceEnds = "eos", target_ends: TargetEnds = "eos"
) -> Batch:
    """Read rows and pack them end to end; the batch is larger than ``shape`` if they do not fit."""
    sources, source_lengths = rows_with_ends(shards.gather("source", rows), source_ends)
    targets, lengths = rows_before_last_eos(shards.gather("target", rows), target_ends)
    target_lengths = lengths + 1
    ends_T = np.cumsum(target_lengths)
    used = (int(source_lengths.sum()), int(target_lengths.sum()))
    rest, padding_sentences = padding_of(used, shape)
    source, target = (np.full(here + more, PAD, np.int64) for here, more in zip(used, rest, strict=True))
    labels = np.full_like(target, PAD)
    source[: used[0]] = sources
    target[ends_T - target_lengths] = BOS
    target[np.delete(np.arange(used[1]), ends_T - target_lengths)] = targets
    labels[np.delete(np.arange(used[1]), ends_T - 1)] = targets
    labels[ends_T - 1] = EOS

    lengths_S = np.concatenate([source_lengths, _evenly(rest[0], padding_sentences)])
    lengths_T = np.concatenate([target_lengths, _evenly(rest[1], padding_sentences)])
    sentences = max(shape.sentences, round_up(len(lengths_S)))
    packing = Packing(
        _offsets(lengths_S, sentences, shape.longest_source),
        _offsets(lengths_T, sentences, shape.longest_target),
        torch.from_numpy(_positions_in_rows(lengths_S)),
        torch.from_numpy(_positions_in_rows(lengths_T)),
    )
    return Batch(
        torch.from_numpy(source),
        torch.from_numpy(target),
        torch.from_numpy(labels),
        label_indices=None,
        packing=packing,
        padding=sum(rest),
        pieces=used[1],
    )


def padding_of(used: tuple[int, int], shape: BatchShape) -> tuple[tuple[int, int], int]:
    """Return the padding of each side and the number of padding sentences.

    No padding sentence is too long, and each has a source and a target.
    """
    source, target = (
        max(size, round_up(here + 1)) - here for size, here in zip((shape.source, shape.target), used, strict=True)
    )
    while min(source, target) < (
        padding_sentences := max(-(-source // shape.longest_source), -(-target // shape.longest_target))
    ):  # one side is full and the other almost empty
        source = max(source, padding_sentences)
        target = max(target, padding_sentences)
    return (source, target), padding_sentences


def _positions_in_rows(lengths: Array) -> Array:
    """Return positions 0, 1, … that restart at each row, for rows end to end."""
    return np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)


def _evenly(total: int, parts: int) -> Array:
    """Split ``total`` into ``parts`` lengths that are as equal as possible."""
    return np.diff(np.arange(parts + 1) * total // parts)


def _offsets(lengths: Array, sentences: int, max_seqlen: int) -> SequenceOffsets:
    """Return cumulative lengths, with empty sentences at the end so that there are ``sentences`` in total."""
    cu_seqlens = np.cumsum(np.pad(lengths, (1, sentences - len(lengths))), dtype=np.int32)
    return SequenceOffsets(torch.from_numpy(cu_seqlens), max_seqlen)
