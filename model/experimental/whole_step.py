"""Computes updates as one CUDA graph: forward and backward pass as one compiled graph, then the optimizer.

On an H200, with torch's attention, updates of the base model are 1.14 times as fast (docs/gpu.md).

A GPU gets one call for an update instead of hundreds. Small models gain most: their GPU would wait for the next call.
All batches must have one shape. Batch and learning rate are copied into fixed tensors, and Adam counts its updates on
the device, so the graph includes Adam's step. Checkpoints have the same contents as without the graph.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from ..data.batch import Batch
from ..data.batches import Update
from ..numerics import autocast
from ..training.metrics import LossSums
from ..training.step import TrainingStep

WARM_UPDATES = 2
"""Number of updates before recording; they compile the graph and create the optimizer's moments."""

Work = Callable[[], None]


def record_cuda_graph(work: Work) -> Work:
    """Record the kernels that ``work`` starts, without running them; return a function that runs them."""
    graph = torch.cuda.CUDAGraph()
    # thread_local, because another thread pins memory for the next batches during the recording.
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        work()
    return graph.replay


class WholeStep(TrainingStep):
    """Computes updates of one packed batch each, on one rank."""

    record: Callable[[Work], Work] = staticmethod(record_cuda_graph)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.parameters = list(self.model.parameters())
        self.forward_backward = torch.compile(self.losses_and_gradients, fullgraph=True, dynamic=False)
        self.batch: Batch | None = None
        self.scale = torch.zeros((), device=self.device)
        self.rate_now = torch.zeros((), device=self.device)
        self.norm_now = torch.zeros((), device=self.device)
        self.sums = torch.zeros(2, device=self.device)
        self.done = 0
        self.replay = self.run
        for group in self.optimizer.param_groups:
            group |= {"lr": self.rate_now, "capturable": self.device.type == "cuda"}

    def set_learning_rate(self, rate: float) -> None:
        self.learning_rate = rate
        self.rate_now.fill_(rate)

    def compute_gradients(self, batches: Update) -> LossSums:
        """Compute the gradients and do the optimizer's step, which the CUDA graph includes."""
        [batch] = batches.micro_batches
        self.batch = self.batch or batch.each(lambda x: torch.empty_like(x, device=self.device))
        kept = self.batch.tensors()
        new = batch.tensors()
        if [x.shape for x in kept] != [x.shape for x in new]:  # rare: one side needs more space than the batch shape
            losses = super().compute_gradients(batches)
            super().change_weights()
            return losses
        self.scale.fill_(1 / batches.pieces)
        for mine, theirs in zip(kept, new, strict=True):
            mine.copy_(theirs, non_blocking=True)
        if self.done == WARM_UPDATES:
            # The graph reads buffers at their addresses; a validation of longer pairs replaces the table of positions.
            self.kept = list(self.model.buffers())
            self.replay = self.record(self.run)
        self.replay()
        self.done += 1
        losses = LossSums(self.device)
        losses.add(self.sums[0], self.sums[1], batch)
        self.norm = self.norm_now
        return losses

    def advise_on_memory(self, largest: Batch) -> str:  # noqa: ARG002
        now = self.training.batch_tokens
        return f"lower training.batch_tokens, now {now:,}, or set REPRO_COMPILE=auto and REPRO_MICRO_BATCH_TOKENS"

    def change_weights(self) -> None:
        """Do nothing: ``compute_gradients`` did the optimizer's step."""

    def run(self) -> None:
        """Compute the update of ``batch``. Reads and writes no value on the host."""
        assert self.batch
        self.norm = None
        with torch._dynamo.config.patch(trace_autograd_ops=True):
            losses, gradients = self.forward_backward(self.batch)
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.grad = gradient
        self.sums.copy_(losses)
        self.norm_now.copy_(self.gradient_norm())
        super().change_weights()

    def losses_and_gradients(self, batch: Batch) -> tuple[Tensor, tuple[Tensor, ...]]:
        with autocast(self.training, self.device):
            loss, nll = self.objective(batch)
        gradients = torch.autograd.grad(loss * self.scale, self.parameters)
        return torch.stack([loss.detach(), nll]), gradients
