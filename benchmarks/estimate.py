"""Estimates an update on an H200 from counts, line by line: ``python benchmarks/estimate.py``; needs Triton.

Products and kernels are counted in Inductor's code (``h200_code.py``), the parts outside compiled graphs by formula.
Milliseconds are the counts over the rates in ``RATES``, which are assumed: no GPU has run this code.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.comparison import SIZES
from benchmarks.h200_code import POSITIONS, Graph, count
from benchmarks.synthetic import LENGTHS
from model.config import Model
from model.config.parameter_count import parameters

RATES = {"product": 570e12, "tile": 190e12, "memory": 3.7e12}
"""Operations of products and of attention's tiles, and bytes, a second: an H200 reaches 790e12 in large products, and
4.8e12 bytes by its data sheet."""
GAPS = 1.3e-3
"""Seconds of an update in tiny kernels and between kernels."""
TILES = {"varlen": 128, "operator": 32}
"""Positions of a tile."""
PIECES = 23_500
"""Target tokens of an update."""
ADAM_BYTES = 28
"""A weight's gradient read; weight and both moments read and written; in float32."""


@dataclass(frozen=True)
class Line:
    """A part of an update: its kernels, operations, bytes, and the rate of its operations."""

    name: str
    kernels: int
    flops: float = 0.0
    bytes: float = 0.0
    rate: str = "product"

    @property
    def seconds(self) -> float:
        """Of products the operations decide, of other kernels the bytes, of attention both."""
        computing, moving = self.flops / RATES[self.rate], self.bytes / RATES["memory"]
        return computing if self.flops and self.rate == "product" else computing + moving


def lines(size: str, attention: str) -> list[Line]:
    """The lines of an update of ``base`` or ``big``, where sentences attend by ``varlen`` or by the ``operator``."""
    config, vocabulary = SIZES[size]
    graphs = count(size, attention == "operator")
    layers = [graph for graph in graphs if graph.name != "loss, forward"]
    [loss] = [graph for graph in graphs if graph.name == "loss, forward"]
    n, d = config.layers, config.d_model
    memory = 6 * POSITIONS * d * config.heads * (config.d_k + config.d_v) * n
    softmax = 6 * POSITIONS * d * vocabulary
    weights = parameters(config, vocabulary, vocabulary)
    return [
        Line("products of the layers", n * total(layers, "products"), n * total(layers, "flops")),
        Line("cross-attention's keys and values", 3 * n, memory),
        Line("products of the softmax", 3, softmax),
        Line(
            f"attention, {attention}", 6 * n, attention_flops(config, TILES[attention]), attention_bytes(config), "tile"
        ),
        Line("Triton kernels of the layers", n * total(layers, "kernels"), bytes=n * total(layers, "triton_bytes")),
        Line("softmax and loss", loss.kernels, bytes=loss.triton_bytes),
        Line("embeddings, forward and backward", 20, bytes=2 * 16 * POSITIONS * d * 4),
        Line("Adam", 1, bytes=ADAM_BYTES * weights),
    ]


def total(graphs: Sequence[Graph], what: str) -> int:
    return sum(getattr(graph, what) for graph in graphs)


def attention_flops(config: Model, tile: int) -> float:
    """Operations in whole tiles over sentences of WMT's lengths, forward (2 products) and backward (5)."""
    lengths = LENGTHS["wmt"].draw(np.random.default_rng(1), 100_000)
    source, target = (-(-(side + 1) // tile) for side in lengths)
    # Tiles above the diagonal of causal attention are skipped.
    tiles = (source**2).sum() + (source * target).sum() + (target * (target + 1) // 2).sum()
    scale = PIECES / float((lengths[1] + 1).sum())
    return float(tiles) * scale * 7 * 2 * tile**2 * config.d_k * config.heads * config.layers


def attention_bytes(config: Model) -> float:
    """Queries, keys, values and outputs in bfloat16: 4 tensors forward, 8 backward, in three attentions a layer."""
    return 3 * config.layers * 12 * POSITIONS * config.heads * config.d_k * 2


def table(size: str) -> str:
    """A Markdown table: the lines with torch's operator and with the own one."""
    by_torch, own = lines(size, "varlen"), lines(size, "operator")
    rows = [f"| {size} | kernels | TFLOP | GB | ms |", "|---|---:|---:|---:|---:|"]
    for one, other in zip(by_torch, own, strict=True):
        for line in [one] if one == other else [one, other]:
            cells = (f"{line.flops / 1e12:.2f}", f"{line.bytes / 1e9:.1f}", f"{1e3 * line.seconds:.1f}")
            rows.append(f"| {line.name} | {line.kernels} | {' | '.join(cells)} |")
    rows.append(f"| tiny kernels, gaps (assumed) | | | | {1e3 * GAPS:.1f} |")
    for name, parts in (("varlen", by_torch), ("operator", own)):
        seconds = sum(part.seconds for part in parts) + GAPS
        kernels, flops, moved = (sum(getattr(p, what) for p in parts) for what in ("kernels", "flops", "bytes"))
        sums = f"{kernels} | {flops / 1e12:.2f} | {moved / 1e9:.1f} | {1e3 * seconds:.1f}"
        rows.append(f"| **together, {name}: {PIECES / seconds:,.0f} target tokens/s** | {sums} |")
    return "\n".join(rows)


def main() -> None:
    for size in ("base", "big"):
        print(table(size), end="\n\n")


if __name__ == "__main__":
    main()
