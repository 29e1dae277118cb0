"""What is said of an update that did not fit into memory: its size, and what to lower."""

from model.batches import Batch, Update
from model.bpe import BOS
from model.endings import OutOfMemory


def too_large(update: Update, number: int, most: int, error: Exception) -> OutOfMemory:
    """The end of a training at an update; ``most`` is its ``site.micro_batch_tokens``, ``error`` what was raised."""
    largest = max(update.parts, key=lambda part: part.cells)
    now = f"now {most:,}" if most else "now all at once"
    cause = (str(error).strip() or type(error).__name__).splitlines()[0]
    return OutOfMemory(
        f"update {number} did not fit into memory: the largest of {len(update.parts)} parts has {shape(largest)}; "
        f"set REPRO_MICRO_BATCH_TOKENS, {now}, to {max(1, largest.pieces // 2):,} or less: {cause}"
    )


def shape(batch: Batch) -> str:
    """How large a batch is, in words."""
    pairs, sources, targets = int((batch.target == BOS).sum()), batch.source.numel(), batch.target.numel()
    return (
        f"{pairs:,} pairs, {sources:,} source and {targets:,} target positions, {batch.padding:,} of them padding, "
        f"{batch.pieces:,} target pieces"
    )
