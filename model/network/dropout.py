"""Fast dropout (§5.4) on a CPU.

Torch draws one double per element, which takes a tenth of the training time of a small model. This module draws 16
bits per element, so the rate is rounded to a multiple of 1 / 65,536. The scale is the one of the rounded rate, rounded
to the type of the elements: in bfloat16 its error is up to 0.2 % (0.16 % too low for a rate of 0.1), as in torch.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

STEPS = 1 << 16


class Dropout(nn.Module):
    """Zeroes each element with probability ``p`` in training and scales the others to preserve the mean."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p
        self.dropped = min(round(p * STEPS), STEPS - 1)

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or not self.dropped:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.p)
        bits = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(1 << 63), None)
        kept = bits.view(torch.int16)[: x.numel()] >= self.dropped - STEPS // 2
        return x * kept.view_as(x).to(x.dtype).mul_(STEPS / (STEPS - self.dropped))
