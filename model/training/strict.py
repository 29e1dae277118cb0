"""Computes updates with bit-identical gradients for any number of ranks (``training.numerics`` strict).

Every update is split into ``PARTS`` shares for any number of ranks. Each share has its own dropout masks, and the
gradients are added in the order of the shares. ``model.numerics`` chooses the kernels.
"""

from dataclasses import dataclass, replace

import torch
from torch import nn

from ..config.keying import require
from ..data.batch import Batch
from ..data.batches import Cursor, Update
from ..data.shards import Array
from .metrics import LossSums
from .step import TrainingStep, UpdateReader, dropout_seed

PARTS = 4
"""Number of shares of an update; the number of ranks must divide it."""


@dataclass(frozen=True)
class StrictReader(UpdateReader):
    """Reads one rank's shares of each update: the numbers that are ``rank`` modulo the number of ranks.

    Raises ValueError if the number of ranks does not divide ``PARTS``. Ignores ``micro_batch_tokens``.
    """

    def __post_init__(self) -> None:
        ranks = self.ranks.world_size
        require(PARTS % ranks == 0, "site.ranks", ranks, "1, 2 or 4 where training.numerics is strict")

    def read(self, rows: Array, following: Cursor) -> Update:
        """Read this rank's shares of the update of these rows; each share is one micro-batch."""
        numbers = range(self.ranks.rank, PARTS, self.ranks.world_size)
        shares = [self.sampler.read(rows, following, number, PARTS, 0) for number in numbers]
        return replace(shares[0], micro_batches=[batch for share in shares for batch in share.micro_batches])


class StrictStep(TrainingStep):
    """Computes updates from the shares of a ``StrictReader``."""

    def wrap(self) -> nn.Module:
        """Return the objective without DDP, which adds gradients in an order that depends on the number of ranks."""
        return self.objective

    def advise_on_memory(self, largest: Batch) -> str:  # noqa: ARG002
        """Advise a smaller update or more memory; micro-batches would change the weights."""
        name = "batch_sentences" if self.training.batch_sentences else "batch_tokens"
        return f"lower training.{name}, now {getattr(self.training, name):,}, or use a machine with more memory"

    def compute_gradients(self, batches: Update) -> LossSums:
        """Compute the gradients of the mean loss over all target tokens of an update, added share by share."""
        losses = LossSums(self.device)
        parameters = list(self.model.parameters())
        sizes = [p.numel() for p in parameters]
        total = torch.zeros(sum(sizes), dtype=parameters[0].dtype)
        for turn, batch in enumerate(batches.micro_batches):
            share = turn * self.ranks.world_size + self.ranks.rank
            torch.manual_seed(dropout_seed(self.training.seed, self.update, share))
            self.optimizer.zero_grad()
            loss, nll = self.objective(batch)
            (loss / batches.pieces).backward()
            own = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in parameters])
            for gradient in self.ranks.gather(own):
                total += gradient
            losses.add(loss, nll, batch)
        for parameter, gradient in zip(parameters, torch.split(total, sizes), strict=True):
            parameter.grad = gradient.view_as(parameter)
        return losses
