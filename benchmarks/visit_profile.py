"""Where an update of the base model spends its time: milliseconds by group of kernels, and idle ones."""

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import torch
from torch.profiler import ProfilerActivity
from torch.profiler import profile as torch_profile

from benchmarks.comparison import SIZES
from benchmarks.contestants import Own, Setting
from benchmarks.synthetic import LENGTHS, write_corpus
from model.config import Training

KERNELS = {
    "copies": ("memcpy", "memset", "copy_"),
    "attention": ("flash", "fmha", "attention", "_forward", "_backward"),
    "triton": ("triton_",),
    "optimiser": ("multi_tensor", "adam", "foreach"),
    "products": ("gemm", "nvjet", "cutlass", "xmma", "mm", "linear"),
}
"""Groups of kernels by parts of their names, the first that fits; on a CPU names of operators."""
PROFILED = 5
"""Updates."""


def profile_update(folder: Path, device: Literal["cuda", "cpu"], *, tiny: bool) -> dict[str, float]:
    """Milliseconds of an update: ``""`` has all of it, ``idle`` when the device does nothing, others the groups."""
    gpu = device == "cuda"
    model, vocabulary = SIZES["toy" if tiny else "base"]
    tokens = 200 if tiny else 25_000
    training = Training(batch_tokens=tokens, batching="packed", precision="bf16" if gpu else "fp32")
    write_corpus(folder, LENGTHS["wmt"], max(200, tokens // 2), vocabulary, seed=1)
    own = Own(Setting(folder, model, training, vocabulary, device, compile=gpu))
    batches = own.batches()

    def updates(count: int) -> float:
        started = time.perf_counter()
        for _ in range(count):
            own.step(next(batches))
        if gpu:
            torch.cuda.synchronize()
        return time.perf_counter() - started

    updates(1 if tiny else 10)
    activity = ProfilerActivity.CUDA if gpu else ProfilerActivity.CPU
    with torch_profile(activities=[activity]) as profiler:
        elapsed = updates(PROFILED)
    spans = [(e.name, e.time_range.start, e.time_range.end) for e in profiler.events() or [] if is_work(e, gpu)]
    idle = 1e3 * elapsed - busy((begin, end) for _, begin, end in spans) / 1e3
    found = {"": 1e3 * elapsed / PROFILED, "idle": idle / PROFILED}
    for name, begin, end in spans:
        group = kernel_group(name)
        found[group] = found.get(group, 0.0) + (end - begin) / 1e3 / PROFILED
    return found


def is_work(event: Any, gpu: bool) -> bool:
    """Whether an event is a kernel, or on a CPU an operator that no other called."""
    return bool(event.device_type.name == "CUDA" if gpu else event.cpu_parent is None)


def kernel_group(kernel: str) -> str:
    """The group of ``KERNELS`` that a kernel belongs to, or ``other``."""
    name = kernel.lower()
    return next((group for group, parts in KERNELS.items() if any(part in name for part in parts)), "other")


def busy(spans: Iterable[tuple[float, float]]) -> float:
    """Length of the union of spans."""
    total = 0.0
    reached = float("-inf")
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total
