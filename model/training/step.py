"""Computes one update of the weights (§5): batches, gradients, learning rate, clipping, the optimizer's step."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import torch
from torch import Tensor, nn

from ..config import Training
from ..data.batch import Batch
from ..data.batches import BatchSampler, Cursor, Update
from ..data.shards import Array
from ..errors import JobError
from ..job import is_out_of_memory
from ..numerics import autocast
from .distributed import Ranks
from .loss import Objective
from .metrics import LossSums
from .optimizer import learning_rate


@dataclass(frozen=True)
class UpdateReader:
    """Reads updates of ``sampler`` for one rank; into pinned memory if the device is a GPU.

    ``micro_batch_tokens`` is the maximum number of tokens per side in a micro-batch; 0 does not split.
    """

    sampler: BatchSampler
    ranks: Ranks
    device: torch.device
    micro_batch_tokens: int

    def read_from(self, cursor: Cursor, count: int) -> Iterator[Update]:
        """Yield the next ``count`` updates after ``cursor``."""
        for rows, following in islice(self.sampler.batches_from(cursor), count):
            yield self.read(rows, following)

    def read(self, rows: Array, following: Cursor) -> Update:
        """Read the update of these rows; ``following`` is the cursor after it."""
        update = self.sampler.read(rows, following, self.ranks.rank, self.ranks.world_size, self.micro_batch_tokens)
        if self.device.type != "cuda":
            return update
        with torch.cuda.device(self.device):  # a thread does not inherit the current device
            return replace(update, micro_batches=[part.each(Tensor.pin_memory) for part in update.micro_batches])


@dataclass(eq=False)
class TrainingStep:
    """Computes updates."""

    training: Training
    objective: Objective
    optimizer: torch.optim.Optimizer
    ranks: Ranks
    device: torch.device
    micro_batch_tokens: int

    def __post_init__(self) -> None:
        self.model = self.objective.transformer
        self.ddp_objective = self.wrap()
        self.update = 0
        self.seconds = 0.0
        """Of the training before the next update."""
        self.learning_rate = 0.0
        self.norm: Tensor | None = None

    def wrap(self) -> nn.Module:
        """Return the module that computes losses and sums its gradients over the ranks."""
        return self.ranks.wrap(self.objective)

    def __call__(self, batches: Update, update: int) -> LossSums:
        """Compute update number ``update``, counted from 1, and return its losses.

        Does not wait for the device. Raises JobError (out_of_memory) naming the size of the batch that does not fit.
        """
        self.update = update
        self.norm = None
        torch.manual_seed(dropout_seed(self.training.seed, update, self.ranks.rank))
        self.set_learning_rate(learning_rate(self.training, self.model.config.d_model, update, self.seconds))
        try:
            losses = self.compute_gradients(batches)
        except (RuntimeError, MemoryError) as error:
            if is_out_of_memory(error):
                raise self.out_of_memory(batches, error) from error
            raise
        self.change_weights()
        return losses

    def out_of_memory(self, batches: Update, error: Exception) -> JobError:
        """Return the error for an update that did not fit into memory, with its size and advice."""
        largest = max(batches.micro_batches, key=lambda part: part.num_positions)
        cause = (str(error).strip() or type(error).__name__).splitlines()[0]
        size = f"{largest.source.numel():,} source and {largest.target.numel():,} target positions"
        message = (
            f"update {self.update} did not fit into memory: the largest of {len(batches.micro_batches)} parts has "
            f"{size}; {self.advise_on_memory(largest)}: {cause}"
        )
        return JobError("out_of_memory", message)

    def advise_on_memory(self, largest: Batch) -> str:
        now = f"now {self.micro_batch_tokens:,}" if self.micro_batch_tokens else "now all at once"
        return f"set REPRO_MICRO_BATCH_TOKENS, {now}, to {max(1, largest.pieces // 2):,} or less"

    def set_learning_rate(self, rate: float) -> None:
        self.learning_rate = rate
        for group in self.optimizer.param_groups:
            group["lr"] = rate

    def change_weights(self) -> None:
        """Clip the gradients and do the optimizer's step."""
        if self.training.clip_norm:
            parameters = self.model.parameters()
            torch.nn.utils.clip_grads_with_norm_(parameters, self.training.clip_norm, self.gradient_norm())
        self.optimizer.step()

    def compute_gradients(self, batches: Update) -> LossSums:
        """Compute the gradients of the mean loss over all target tokens, for any number of ranks and micro-batches."""
        self.optimizer.zero_grad()
        losses = LossSums(self.device)
        for i, batch in enumerate(batches.micro_batches):
            with self.no_sync() if i < len(batches.micro_batches) - 1 else nullcontext():
                with autocast(self.training, self.device):
                    loss, nll = self.ddp_objective(batch.to(self.device))
                # DDP averages over ranks, but the sum is needed.
                (loss * (self.ranks.world_size / batches.pieces)).backward()
            losses.add(loss, nll, batch)
        return losses

    def no_sync(self) -> AbstractContextManager[None]:
        """Keep gradients on their rank; the last micro-batch of an update sums all of them over the ranks."""
        if isinstance(self.ddp_objective, nn.parallel.DistributedDataParallel):
            return self.ddp_objective.no_sync()
        return nullcontext()

    def gradient_norm(self) -> Tensor:
        """Return the norm of the update's gradients before clipping."""
        if self.norm is None:
            self.norm = torch.nn.utils.get_total_norm([p.grad for p in self.model.parameters() if p.grad is not None])
        return self.norm


def dropout_seed(seed: int, update: int, rank: int) -> int:
    """Return the seed of the random numbers of one update on one rank."""
    return int(np.random.SeedSequence([seed, update, rank]).generate_state(1, np.uint64)[0])
