"""What a training asks of its dev set now and then: the perplexity (§6.2), over all ranks."""

import math
from collections.abc import Callable

import numpy as np
import torch

from model.batches import Plan, load
from model.objective import Objective
from model.ranks import Ranks
from model.shards import Shards

DEV_TOKENS = 8_192
"""Target pieces of dev text computed at once."""


class Validation:
    """The dev set, ready to be asked about as often as the weights have changed."""

    def __init__(
        self, dev: Shards, ranks: Ranks, device: torch.device, precision: Callable[[], torch.autocast]
    ) -> None:
        self.dev, self.ranks, self.device, self.precision = dev, ranks, device, precision
        longest = int(max(map(np.max, dev.lengths.values()))) + 1
        self.batches = Plan(dev, max(DEV_TOKENS, longest), seed=0).epoch(0)

    @torch.no_grad()
    def check(self, objective: Objective) -> dict[str, float]:
        """``dev_perplexity``: exp of the mean -log p of the reference, per piece, without smoothing (§6.2)."""
        objective.eval()
        sums = torch.zeros(2, dtype=torch.float64)
        for rows in self.batches[self.ranks.rank :: self.ranks.size]:
            batch = load(self.dev, rows)
            with self.precision():
                _, nll = objective(batch.to(self.device))
            sums += torch.tensor([float(nll), batch.pieces])
        objective.train()
        nll, pieces = self.ranks.sum(sums).tolist()
        return {"dev_perplexity": math.exp(min(nll / pieces, 700))}
