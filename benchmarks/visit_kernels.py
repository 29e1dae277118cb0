"""Steps of ``visit.py`` that look at single kernels: the machine's ceilings, where an update's time goes, attention."""

import argparse
import platform
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from benchmarks.comparison import SIZES
from benchmarks.contestants import Own, Setting
from benchmarks.machine import PROJECT_ROOT, processor
from benchmarks.synthetic import LENGTHS, write_corpus
from benchmarks.variants import attend_by_torch
from model.config import Training
from model.data.batches import Batch, BatchSampler, Cursor
from model.data.shards import Shards
from model.network.attention import LONGEST, PackedMask, SequenceOffsets
from model.network.widths import Widths

LIBRARIES = ("torch", "triton", "numpy", "pyarrow", "tokenizers", "safetensors", "sacrebleu", "pytest")
GROUPS = (
    ("copies", ("memcpy", "memset", "copy_")),
    ("attention", ("flash", "fmha", "attention", "_forward", "_backward")),
    ("triton", ("triton_",)),
    ("optimiser", ("multi_tensor", "adam", "foreach")),
    ("products", ("gemm", "nvjet", "cutlass", "xmma", "mm", "linear")),
)
"""Groups of kernels by what their names hold, the first that fits; on a CPU names of operators."""
Attend = Callable[[PackedMask, Tensor, Tensor | None, Widths, float], Tensor]
PROFILED = 5
"""Updates."""
EQUAL_LENGTHS = (32, 64, 128, 256)
"""Positions of sentences that are all of one length: from which on is torch's operator the faster one?"""
ONE_LONG = (LONGEST, 512)
"""Positions of one sentence among those of the batch: for how long do the others wait for it?"""


def probe(chosen: argparse.Namespace) -> dict[str, Any]:
    """The machine, its libraries, and what it reaches in one product, one copy and small kernels."""
    gpu = chosen.device == "cuda"
    size, elements = (8192, 1 << 28) if gpu else (256, 1 << 16)
    found: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if gpu else processor(),
        "python": platform.python_version(),
        "libraries": {name: installed(name) for name in LIBRARIES},
    }
    if gpu:
        shown = subprocess.run(["nvidia-smi"], capture_output=True, text=True, check=False).stdout
        found |= {"driver": shown, "memory_bytes": torch.cuda.get_device_properties(0).total_memory}
    for name, dtype, precision in (
        ("bf16", torch.bfloat16, "highest"),
        ("tf32", torch.float32, "high"),
        ("fp32", torch.float32, "highest"),
    ):
        torch.set_float32_matmul_precision(precision)
        x = torch.randn(size, size, device=chosen.device, dtype=dtype)
        found[f"tflops_{name}"] = 2 * size**3 / seconds(lambda x=x: x @ x, gpu) / 1e12  # type: ignore[misc]
    x = torch.zeros(elements, device=chosen.device)
    y, small = torch.empty_like(x), torch.zeros(1, device=chosen.device)
    found["copy_gigabytes_per_second"] = 2 * 4 * elements / seconds(lambda: y.copy_(x), gpu) / 1e9
    found["launch_microseconds"] = seconds(lambda: small.add_(1), gpu, 1_000) * 1e6
    return found


def installed(library: str) -> str:
    """The version of a library, or an empty string."""
    try:
        return version(library)
    except PackageNotFoundError:
        return ""


def seconds(work: Callable[[], object], gpu: bool, times: int = 10) -> float:
    """Wall seconds of one call: the least of three rounds of ``times`` calls, after one round that warms up."""
    rounds = []
    for _ in range(4):
        begun = time.perf_counter()
        for _ in range(times):
            work()
        if gpu:
            torch.cuda.synchronize()
        rounds.append((time.perf_counter() - begun) / times)
    return min(rounds[1:])


def profile_updates(chosen: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds and kernels of an update by group, and the milliseconds in which the device does nothing.

    On a CPU those of torch's operators. Without compilation on a CPU.
    """
    gpu, tiny = chosen.device == "cuda", chosen.size == "tiny"
    model, vocabulary = SIZES["toy" if tiny else "base"]
    tokens, warmup = (200, 1) if tiny else (25_000, 10)
    training = Training(batch_tokens=tokens, batching="packed", precision="bf16" if gpu else "fp32")
    folder = chosen.work / "profile"
    shutil.rmtree(folder, ignore_errors=True)  # of a call that was cut off
    write_corpus(folder, LENGTHS["wmt"], max(200, tokens // 2), vocabulary, seed=1)
    own = Own(Setting(folder, model, training, vocabulary, chosen.device, compile=gpu))
    batches = own.batches()
    for _ in range(warmup):
        own.step(next(batches))
    kind = ProfilerActivity.CUDA if gpu else ProfilerActivity.CPU
    if gpu:
        torch.cuda.synchronize()
    with profile(activities=[kind]) as profiler:
        begun = time.perf_counter()
        pieces = sum(own.step(next(batches)).target_pieces for _ in range(PROFILED))
        if gpu:
            torch.cuda.synchronize()
        elapsed = time.perf_counter() - begun
    spans = [(e.name, e.time_range.start, e.time_range.end) for e in profiler.events() or [] if is_work(e, gpu)]
    groups: dict[str, dict[str, float]] = {}
    by_name: dict[str, float] = {}
    for name, begin, end in spans:
        row = groups.setdefault(group_of(name), {"milliseconds": 0.0, "kernels": 0.0})
        row["milliseconds"] += (end - begin) / 1e3 / PROFILED
        row["kernels"] += 1 / PROFILED
        by_name[name] = by_name.get(name, 0.0) + (end - begin) / 1e3 / PROFILED
    return {
        "target_pieces": pieces / PROFILED,
        "milliseconds": 1e3 * elapsed / PROFILED,
        "idle_milliseconds": 1e3 * elapsed / PROFILED - busy((b, e) for _, b, e in spans) / 1e3 / PROFILED,
        "groups": groups,
        "longest": sorted(by_name.items(), key=lambda row: -row[1])[:20],
    }


def is_work(event: Any, gpu: bool) -> bool:
    """Whether an event is a kernel, or on a CPU an operator that no other called."""
    return event.device_type.name == "CUDA" if gpu else event.cpu_parent is None


def group_of(kernel: str) -> str:
    """The group of ``GROUPS`` that a kernel belongs to, or ``other``."""
    name = kernel.lower()
    return next((group for group, parts in GROUPS if any(part in name for part in parts)), "other")


def busy(spans: Iterable[tuple[float, float]]) -> float:
    """Length of the union of spans."""
    total, reached = 0.0, float("-inf")
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total


def attention(chosen: argparse.Namespace) -> dict[str, Any]:
    """Forward and backward of ``model::packed_attention`` against torch's own attention, on a batch of real pairs.

    Milliseconds of each, with the distance of both outputs and gradients relative to their size. Torch's is the varlen
    operator on a GPU, attention over padded rows on a CPU. Then self-attention over sentences of ``EQUAL_LENGTHS``, and
    over those of the batch with one of ``ONE_LONG`` positions.
    """
    tiny = chosen.size == "tiny"
    widths = Widths(2, 8, 8) if tiny else Widths(8, 64, 64)
    batch = packed_batch(PROJECT_ROOT / "data" / "wmt14-sample-ende" / "shards", 600 if tiny else 25_000)
    packing = batch.to(torch.device(chosen.device)).packing
    assert packing
    sources, targets = packing.source, packing.target
    masks = {
        "self": PackedMask(sources, sources),
        "causal": PackedMask(targets, targets, causal=True),
        "cross": PackedMask(targets, sources),
    }
    found: dict[str, Any] = {}
    for kind, mask in masks.items():
        compared = Attention(mask, widths, chosen.device)
        with_dropout = compared.milliseconds(PackedMask.attend_by_operator, 0.1, tiny)
        found[kind] = {**compared.both(tiny), "operator with dropout": with_dropout}
    real = sources.cu_seqlens.diff()
    real = real[real > 0]
    lengths = {
        f"self, all of {most}": real.new_full(((512 if tiny else 24_576) // most,), most) for most in EQUAL_LENGTHS
    }
    lengths |= {f"self, one of {most}": torch.cat([real, real.new_full((1,), most)]) for most in ONE_LONG}
    for name, each in lengths.items():
        offsets = SequenceOffsets(torch.cat([each.new_zeros(1), each.cumsum(0)]).int(), int(each.max()))
        found[name] = Attention(PackedMask(offsets, offsets), widths, chosen.device).both(tiny)
    return {"sentences": int((sources.cu_seqlens.diff() > 0).sum()), "target_pieces": batch.pieces, **found}


class Attention:
    """One attention over random inputs, by one implementation or another."""

    def __init__(self, mask: PackedMask, widths: Widths, device: str) -> None:
        self.mask, self.widths, self.gpu = mask, widths, device == "cuda"
        queries, keys = (int(offsets.cu_seqlens[-1]) for offsets in (mask.queries, mask.keys))
        own, others = widths.heads * widths.d_k, widths.heads * (widths.d_k + widths.d_v)
        cross = mask.queries is not mask.keys
        shapes = [(queries, own), (keys, others)] if cross else [(queries, own + others)]
        dtype = torch.bfloat16 if self.gpu else torch.float32
        self.inputs = [torch.randn(shape, device=device, dtype=dtype).requires_grad_() for shape in shapes]
        self.grad = torch.randn(queries, widths.heads * widths.d_v, device=device, dtype=dtype)

    def results(self, attend: Attend, p_drop: float = 0.0) -> list[Tensor]:
        """The output and the gradients of the inputs."""
        x_MX, memory_SY = (*self.inputs, None)[:2]
        assert x_MX is not None
        out = attend(self.mask, x_MX, memory_SY, self.widths, p_drop)
        return [out, *torch.autograd.grad(out, self.inputs, self.grad)]

    def both(self, tiny: bool) -> dict[str, float]:
        """Milliseconds of the own operator and of torch's, and the distance of their results."""
        own, other = self.results(PackedMask.attend_by_operator), self.results(attend_by_torch)
        apart = [((a.float() - b.float()).norm() / b.float().norm()).item() for a, b in zip(own, other, strict=True)]
        return {
            "distance": max(apart),
            "operator": self.milliseconds(PackedMask.attend_by_operator, 0.0, tiny),
            "torch": self.milliseconds(attend_by_torch, 0.0, tiny),
        }

    def milliseconds(self, attend: Attend, p_drop: float, tiny: bool) -> float:
        return 1e3 * seconds(lambda: self.results(attend, p_drop), self.gpu, 2 if tiny else 20)


def packed_batch(folder: Path, tokens: int) -> Batch:
    """The first batch of a training."""
    sampler = BatchSampler(Shards(folder), tokens, 1, "packed")
    rows, following = next(sampler.batches_from(Cursor()))
    return sampler.read(rows, following, 0, 1, 0).micro_batches[0]
