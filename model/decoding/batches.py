"""Forms the batches of a search: the number of source tokens for a device, and the sentences of each batch."""

from collections.abc import Iterator, Sequence

import torch

CPU_BATCH_PIECES = 1_024
GPU_BATCH_PIECES = (16_384, 65_536)
"""Minimum and maximum source tokens of a batch, including special tokens and padding."""
COUNTED_BEAM = 4
"""For each source the target side has ``beam`` rows; a wider beam than this takes smaller batches."""
BYTES_PER_PIECE = 2 << 20
"""A GPU's memory for each source token. The paper's big model with a beam of 4 needs 0.9 MB: target keys and values
0.8 MB (6 layers, 4 rows, two buffers with spare capacity), source keys and values and logits 0.1 MB."""
MIN_COUNTED_LENGTH = 8
"""Shorter sources count as this number of tokens in a batch."""


def batch_pieces(device: torch.device) -> int:
    """Return the source tokens of a batch on this device; on a GPU they depend on its memory."""
    if device.type == "cpu":
        return CPU_BATCH_PIECES
    least, most = GPU_BATCH_PIECES
    memory: int = torch.cuda.get_device_properties(device).total_memory
    return min(max(memory // BYTES_PER_PIECE, least), most)


def batch_by_length(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Yield batches of indices of ``lengths``: longest length * batch size is at most ``budget``, or the size is 1.

    The longest come first, so that a lack of memory shows at once. Short sources count as ``MIN_COUNTED_LENGTH``,
    because the logits of a step need the same memory for short and long sources.
    """
    order = sorted(range(len(lengths)), key=lambda position: -lengths[position])
    start = 0
    while start < len(order):
        end = start + max(1, budget // max(MIN_COUNTED_LENGTH, lengths[order[start]]))
        yield order[start:end]
        start = end
