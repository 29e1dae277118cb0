"""Compares training speed: contestants train on the same pairs in turns.

The result is a dictionary for JSON with rates, padding, memory and utilisation, and the ratios of the first contestant
to the others. Ratios are taken within a round, so that other load of the machine affects both.
"""

import hashlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from benchmarks.contestants import Contestant, Setting
from benchmarks.machine import CLOCKS, ratios, spread
from benchmarks.machine import timed as measured
from model.config import Model
from model.config.paper_models import BASE, BIG
from model.data.shards import Array, Shards
from model.training.flops import PEAKS, training_flops

SIZES: dict[str, tuple[Model, int]] = {
    "toy": (Model(layers=1, d_model=16, d_ff=32, heads=2, d_k=8, d_v=8), 64),
    "tiny": (Model(layers=4, d_model=128, d_ff=256, heads=4, d_k=32, d_v=32, p_drop=0.3, norm="pre"), 8_000),
    "small": (Model(layers=3, d_model=256, d_ff=1024, heads=4), 8_000),
    "base": (BASE, 37_000),
    "big": (BIG, 37_000),
}
"""Shape and size of the joint vocabulary; ``tiny`` is that of the run multi30k-ende, base and big are the paper's."""


@dataclass(frozen=True)
class Round:
    """The measurements of one contestant in one round."""

    wall: float
    cpu: float
    """User and system seconds of all threads of the process."""
    pairs: int
    target_pieces: int
    cells: int
    padding: int
    flops: float
    peak_bytes: int
    """Peak device memory of the contestant; 0 on a CPU."""


def compare(
    makers: Sequence[type[Contestant]], setting: Setting, rounds: int, updates: int, warmup: int
) -> dict[str, Any]:
    """Build, warm up and measure the contestants; ratios are of the first to each other one."""
    gpu = setting.device == "cuda"
    peak = Peak.of(setting)
    lengths = {side: counts + 1 for side, counts in Shards(setting.folder / "shards").lengths.items()}
    entries: list[_Entry] = []
    for make in makers:
        before = torch.cuda.memory_allocated() if gpu else 0
        contestant = make(setting)
        entry = _Entry(contestant, contestant.batches())
        for _ in range(warmup):
            contestant.step(next(entry.stream))
        entry.resident = torch.cuda.memory_allocated() - before if gpu else -1
        entries.append(entry)

    for number in range(rounds):
        for entry in entries if number % 2 == 0 else entries[::-1]:
            batches = [next(entry.stream) for _ in range(updates)]
            rows = np.concatenate(batches)
            flops = training_flops(setting.model, setting.vocabulary, *(lengths[s][rows] for s in lengths))
            entry.done.append(timed(entry.contestant, batches, flops, entry.resident))
            entry.seen.update(np.sort(rows).astype(np.int64).tobytes())

    return {
        "peak": vars(peak),
        "contestants": {
            entry.name: {"parameters": entry.contestant.parameters, "pairs_digest": entry.seen.hexdigest()[:16]}
            | summary(entry.done, peak)
            for entry in entries
        },
        "ratios": ratios(
            {e.name: {clock: [rate(r, getattr(r, clock)) for r in e.done] for clock in CLOCKS} for e in entries}
        ),
    }


@dataclass
class _Entry:
    """A contestant and what was measured of it."""

    contestant: Contestant
    stream: Iterator[Array]
    resident: int = -1
    """Its GPU memory between rounds; -1: no GPU."""
    done: list[Round] = field(default_factory=list)
    seen: "hashlib._Hash" = field(default_factory=hashlib.sha256)

    @property
    def name(self) -> str:
        return self.contestant.name


def timed(contestant: Contestant, batches: Sequence[Array], flops: float, resident: int) -> Round:
    """Measure updates over ``batches``; ``resident`` is the contestant's GPU memory between rounds (-1: no GPU)."""
    gpu = resident >= 0
    others = torch.cuda.memory_allocated() - resident if gpu else 0
    if gpu:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    synchronize = torch.cuda.synchronize if gpu else lambda: None
    steps, seconds = measured(lambda: [contestant.step(rows) for rows in batches], synchronize)
    return Round(
        **seconds,
        pairs=sum(step.pairs for step in steps),
        target_pieces=sum(step.target_pieces for step in steps),
        cells=sum(step.cells for step in steps),
        padding=sum(step.padding for step in steps),
        flops=flops,
        peak_bytes=torch.cuda.max_memory_allocated() - others if gpu else 0,
    )


def summary(rounds: Sequence[Round], peak: "Peak") -> dict[str, Any]:
    """Summarise rounds: rates in target tokens per second, shares as fractions."""
    cells = sum(r.cells for r in rounds)
    return {
        "pairs": sum(r.pairs for r in rounds),
        "target_pieces": sum(r.target_pieces for r in rounds),
        "per_second": spread([rate(r, r.wall) for r in rounds]),
        "per_cpu_second": spread([rate(r, r.cpu) for r in rounds]),
        "padding": sum(r.padding for r in rounds) / cells,
        "flops_per_target_piece": sum(r.flops for r in rounds) / sum(r.target_pieces for r in rounds),
        "utilisation": spread([peak.share(r) for r in rounds]),
        "peak_bytes": max(r.peak_bytes for r in rounds),
        "rounds": [vars(r) for r in rounds],
    }


def rate(done: Round, seconds: float) -> float:
    return done.target_pieces / seconds


@dataclass(frozen=True)
class Peak:
    """The peak speed of the device in operations per second, on a CPU per second of all threads."""

    flops_per_second: float
    """From the data sheet; that of one large matrix product in the precision of the training where none is known."""
    by: str
    cpu: bool

    @staticmethod
    def of(setting: Setting) -> "Peak":
        bf16 = setting.training.precision == "bf16"
        gpu = setting.device == "cuda"
        size, times = (8192, 20) if gpu else (1024, 5)
        x = torch.randn(size, size, device=setting.device, dtype=torch.bfloat16 if bf16 else torch.float32)
        best = 0.0
        for _ in range(4):
            # On a CPU in CPU seconds, so that another process on the core does not lower the peak.
            clock = time.perf_counter if gpu else time.process_time
            started = clock()
            for _ in range(times):
                x @ x
            if gpu:
                torch.cuda.synchronize()
            best = max(best, times * 2 * size**3 / (clock() - started))
        name = torch.cuda.get_device_name() if gpu and bf16 else ""
        sheet = next((peak for device, peak in PEAKS.items() if device in name), 0.0)
        by = "data sheet, dense" if sheet else "one large product, measured at the start"
        return Peak(sheet or best, by, not gpu)

    def share(self, done: Round) -> float:
        """Return the share of the peak that a round used."""
        return done.flops / (done.cpu if self.cpu else done.wall) / self.flops_per_second
