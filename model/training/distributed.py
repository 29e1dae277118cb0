"""The processes of one training, with the same calls for one process and for ranks under torchrun.

An update uses the same pairs for any number of ranks, and its gradient is the mean over all their target pieces. The
same number of ranks, resumed or not, gives bit-identical weights on one kind of CPU, though not on a GPU. Another
number sums in another order and draws other dropout masks. Without dropout the first updates agree up to float32
rounding. If gradients are near zero, Adam scales rounding noise up to a full step: after some dozens of updates, single
weights differ by the size of an update, but loss and perplexity do not. With ``training.numerics`` strict the weights
do not depend on the number of ranks (``model.training.strict``).
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn


@dataclass(frozen=True)
class Ranks:
    """The rank of this process, and the number of ranks."""

    rank: int = 0
    world_size: int = 1
    timeout_seconds: float = 0.0
    """Maximum wait for another rank; 0 for a single rank."""
    wrapped: list[nn.parallel.DistributedDataParallel] = field(default_factory=list, compare=False)
    """The DDP modules that ``wrap`` returned."""

    @staticmethod
    @contextmanager
    def join(timeout_seconds: float) -> Iterator["Ranks"]:
        """Join the ranks that torchrun started (gloo between CPUs, NCCL between GPUs), and leave them at the end.

        A rank that waits longer than ``timeout_seconds`` for another one fails, and torchrun ends all ranks.
        """
        size = int(os.environ.get("WORLD_SIZE", "1"))
        if size == 1:
            yield Ranks()
            return
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(backend, timeout=timedelta(seconds=timeout_seconds))
        ranks = Ranks(dist.get_rank(), size, timeout_seconds)
        yield ranks
        # If a reducer existed longer than the group, it would destroy the group later while it holds the GIL. This
        # joins gloo's threads, and one of them may wait for the GIL to free a tensor: the process would never end.
        for module in ranks.wrapped:
            del module.logger, module.reducer
        # Not after an error: leaving the group may wait for other ranks, and the error would be reported late or never.
        dist.destroy_process_group()

    @property
    def is_main(self) -> bool:
        """Whether this rank writes the files (rank 0)."""
        return self.rank == 0

    def any(self, here: bool) -> bool:
        """Return whether the flag is set on any rank. Does not wait for a GPU."""
        if self.world_size == 1:
            return here
        flag = torch.tensor(int(here))
        dist.all_reduce(flag, dist.ReduceOp.MAX)
        return bool(flag)

    def sum(self, here: Tensor) -> Tensor:
        """Sum over ranks, in place."""
        if self.world_size > 1:
            dist.all_reduce(here)
        return here

    def gather(self, here: Tensor) -> list[Tensor]:
        """Return the tensors of all ranks, in the order of the ranks."""
        if self.world_size == 1:
            return [here]
        tensors = [torch.empty_like(here) for _ in range(self.world_size)]
        dist.all_gather(tensors, here)
        return tensors

    def broadcast(self, here: int) -> int:
        """Return the main rank's number on all ranks."""
        number = torch.tensor(here)
        if self.world_size > 1:
            dist.broadcast(number, 0)
        return int(number)

    def wrap(self, module: nn.Module) -> nn.Module:
        """Wrap the module in DDP, which averages gradients over ranks; a single rank gets the module itself."""
        if self.world_size == 1:
            return module
        self.wrapped.append(
            nn.parallel.DistributedDataParallel(module, broadcast_buffers=False, gradient_as_bucket_view=True)
        )
        return self.wrapped[-1]
