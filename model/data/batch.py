"""The pieces of a batch of pairs as tensors."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ..config import SourceEnds, TargetEnds
from ..config.special_pieces import BOS, EOS, PAD
from ..network.transformer import Packing
from .ends import rows_before_last_eos, rows_with_ends
from .shards import Array, Shards


@dataclass(frozen=True)
class Batch:
    """A batch of pairs: sources with special tokens (``Model.source_ends``), decoder inputs bos …, and labels.

    Padded (``packing`` is None): ``source`` is (B, S), ``target`` is (B, T). ``label_indices`` (M) are the positions
    to predict in the flattened (B, T), and ``labels`` (M) are the pieces there. Packed end to end: ``source`` is (S),
    ``target`` and ``labels`` are (T), labels at padding are PAD, and ``label_indices`` is None.
    """

    source: Tensor
    target: Tensor
    labels: Tensor
    label_indices: Tensor | None
    packing: Packing | None
    padding: int
    """Number of positions of both sides without a piece."""
    pieces: int
    """Number of pieces to predict."""

    @property
    def num_positions(self) -> int:
        return self.source.numel() + self.target.numel()

    def to(self, device: torch.device) -> "Batch":
        """Copy the batch to a device; with pinned memory the copy does not block the host."""
        return self.each(lambda x: x.to(device, non_blocking=True))

    def tensors(self) -> list[Tensor]:
        """Return all tensors in a fixed order."""
        tensors: list[Tensor] = []
        self.each(lambda x: tensors.append(x) or x)  # type: ignore[func-returns-value]
        return tensors

    def each(self, move: Callable[[Tensor], Tensor]) -> "Batch":
        """Return a batch in which each tensor ``x`` is replaced by ``move(x)``."""
        packing = self.packing and Packing(
            replace(self.packing.source, cu_seqlens=move(self.packing.source.cu_seqlens)),
            replace(self.packing.target, cu_seqlens=move(self.packing.target.cu_seqlens)),
            move(self.packing.source_positions_S),
            move(self.packing.target_positions_T),
        )
        label_indices = None if self.label_indices is None else move(self.label_indices)
        source, target, labels = (move(x) for x in (self.source, self.target, self.labels))
        return replace(self, source=source, target=target, labels=labels, label_indices=label_indices, packing=packing)


def load_padded(shards: Shards, rows: Array, source_ends: SourceEnds = "eos", target_ends: TargetEnds = "eos") -> Batch:
    """Read rows and pad them. If ``rows`` is empty, the batch has one pair without labels."""
    sources = rows_with_ends(shards.gather("source", rows), source_ends)
    targets = rows_before_last_eos(shards.gather("target", rows), target_ends)
    count = max(len(rows), 1)
    source_BS = np.full((count, sources[1].max(initial=1)), PAD, np.int64)
    target_BT = np.full((count, 1 + targets[1].max(initial=0)), PAD, np.int64)
    labels_BT = np.full_like(target_BT, PAD)
    source_BS[len(rows) :, 0] = EOS
    target_BT[:, 0] = BOS
    valid_BS, valid_BT = (
        np.arange(x.shape[1]) < n[:, None] for x, n in ((source_BS, sources[1]), (target_BT, targets[1]))
    )
    source_BS[: len(rows)][valid_BS] = sources[0]
    target_BT[: len(rows), 1:][valid_BT[:, :-1]] = targets[0]
    labels_BT[: len(rows)][valid_BT] = targets[0]
    labels_BT[np.arange(len(rows)), targets[1]] = EOS
    flat = labels_BT.reshape(-1)
    label_indices = np.flatnonzero(flat != PAD)
    padding = int((source_BS == PAD).sum()) + flat.size - len(label_indices)
    source, target, labels = (torch.from_numpy(x) for x in (source_BS, target_BT, flat[label_indices]))
    return Batch(source, target, labels, torch.from_numpy(label_indices), None, padding, len(label_indices))
