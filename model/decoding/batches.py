"""The batches of a search: how many source tokens a device takes at once, and which sentences share a batch."""

from collections.abc import Iterator, Sequence

import torch

CPU_BATCH_PIECES = 1_024
GPU_BATCH_PIECES = (16_384, 65_536)
"""Least and most source tokens of a batch, special tokens and padding counted; the target has a beam of rows for each
source."""
BYTES_PER_PIECE = 2 << 20
"""A GPU's memory for each of them: the paper's big model with a beam of 4 needs 0.9 MB (by count: 6 layers of keys and
values of 4 rows in two buffers with spare capacity 0.8 MB, those of the source and logits 0.1 MB)."""
MIN_COUNTED_LENGTH = 8
"""Least number of tokens that a source counts for in a batch."""


def batch_pieces(device: torch.device) -> int:
    """Source tokens of a batch on this device; on a GPU by its memory."""
    if device.type == "cpu":
        return CPU_BATCH_PIECES
    least, most = GPU_BATCH_PIECES
    memory: int = torch.cuda.get_device_properties(device).total_memory
    return min(max(memory // BYTES_PER_PIECE, least), most)


def batch_by_length(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Yield batches of positions in ``lengths``: longest times number is at most ``budget``, or the batch has one.

    The longest come first, so that a lack of memory shows at once. Short ones count as ``MIN_COUNTED_LENGTH``, since
    the logits of a step take as much memory for them as for long ones.
    """
    order = sorted(range(len(lengths)), key=lambda position: -lengths[position])
    start = 0
    while start < len(order):
        end = start + max(1, budget // max(MIN_COUNTED_LENGTH, lengths[order[start]]))
        yield order[start:end]
        start = end
