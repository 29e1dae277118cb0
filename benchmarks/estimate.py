"""Estimates an update on an H200 from counts, line by line: ``python benchmarks/estimate.py``; needs Triton.

Products and kernels are counted in Inductor's code (``h200_code.py``), the parts outside compiled graphs by formula.
Milliseconds are the counts over the rates in ``RATES``, which are assumed: no GPU has run this code.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.comparison import SIZES
from benchmarks.h200_code import POSITIONS, Graph, count
from benchmarks.synthetic import LENGTHS
from model.config import Model
from model.config.parameter_count import parameters
from model.network.attention import LONGEST

RATES = {"product": 570e12, "tile": 190e12, "memory": 3.7e12}
"""Operations of products and of attention's tiles, and bytes, a second: an H200 reaches 790e12 in large products, and
4.8e12 bytes by its data sheet."""
GAPS = 1.3e-3
"""Seconds of an update in tiny kernels and between kernels."""
TILES = {"varlen": 128, "operator": 32}
"""Positions of a tile."""
AGAIN = {"varlen": 0, "operator": 2}
"""Products that the backward pass of a sentence beyond one tile computes a second time."""
AT_ONCE = 2 * 132
"""Programs of the own operator's backward pass that an H200 runs at once: registers hold two on each unit."""
LIMITS = (32, 64, 96, 128, 256, LONGEST, 512, 1024)
"""Positions in the table of long sentences."""
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


@dataclass(frozen=True)
class Stage:
    """How an update is computed: its name in the table, and the arguments of ``h200_code.count``."""

    name: str
    attention: str
    fused: bool = True
    residual: str = "fp32"


STAGES = (
    Stage("before", "varlen", fused=False),
    Stage("own attention", "operator", fused=False),
    Stage("ReLU in its product", "operator"),
    Stage("residual in bf16", "operator", residual="bf16"),
)
"""Each with the changes of those before it."""


def lines(size: str, stage: Stage) -> list[Line]:
    """The lines of an update of ``base`` or ``big``."""
    config, vocabulary = SIZES[size]
    graphs = count(size, stage.attention == "operator", stage.residual, stage.fused)
    layers = [graph for graph in graphs if graph.name != "loss, forward"]
    [loss] = [graph for graph in graphs if graph.name == "loss, forward"]
    n, d, joined = config.layers, config.d_model, config.heads * (config.d_k + config.d_v)
    memory = 6 * POSITIONS * d * joined * n
    softmax = 6 * POSITIONS * d * vocabulary
    weights = parameters(config, vocabulary, vocabulary)
    narrow = stage.residual == "bf16"
    # In bfloat16 one product of all layers, whose gradients are joined; else the layers' gradients are added up.
    products, copies = (3, 4 * POSITIONS * joined * n) if narrow else (3 * n, 12 * POSITIONS * d * (n - 1))
    tiles = attention_flops(config, stage.attention)
    return [
        Line("products of the layers", n * total(layers, "products"), n * total(layers, "flops")),
        Line("cross-attention's keys and values", products, memory),
        Line("their gradients, joined or added", 1 if narrow else n - 1, bytes=copies),
        Line("products of the softmax", 3, softmax),
        Line("attention", 6 * n, tiles, attention_bytes(config), "tile"),
        Line("Triton kernels of the layers", n * total(layers, "kernels"), bytes=n * total(layers, "triton_bytes")),
        Line("softmax and loss", loss.kernels, bytes=loss.triton_bytes),
        Line("embeddings, forward and backward", 20, bytes=2 * 16 * POSITIONS * d * 4),
        Line("Adam", 1, bytes=ADAM_BYTES * weights),
    ]


def total(graphs: Sequence[Graph], what: str) -> int:
    return sum(getattr(graph, what) for graph in graphs)


def attention_flops(config: Model, attention: str) -> float:
    """Operations in whole tiles over sentences of WMT's lengths, forward and backward."""
    lengths = LENGTHS["wmt"].draw(np.random.default_rng(1), 100_000)
    source, target = (-(-(side + 1) // TILES[attention]) for side in lengths)
    products = 0.0
    # Tiles above the diagonal of causal attention are skipped.
    for queries, keys, tiles in (
        (source, source, source**2),
        (target, source, source * target),
        (target, target, target * (target + 1) // 2),
    ):
        products += float((tiles * products_of(attention, np.maximum(queries, keys))).sum())
    scale = PIECES / float((lengths[1] + 1).sum())
    return products * scale * product_of_tiles(config, attention) * config.heads * config.layers


def products_of(attention: str, tiles: NDArray[np.int64]) -> NDArray[np.int64]:
    """Products of a pair of tiles, forward (2) and backward (5), for sentences of so many tiles."""
    return 7 + AGAIN[attention] * (tiles > 1)


def product_of_tiles(config: Model, attention: str) -> float:
    """Operations of one product of two tiles of one head."""
    return 2.0 * TILES[attention] ** 2 * config.d_k


def attention_bytes(config: Model) -> float:
    """Queries, keys, values and outputs in bfloat16: 4 tensors forward, 8 backward, in three attentions a layer."""
    return 3 * config.layers * 12 * POSITIONS * config.heads * config.d_k * 2


def table(size: str) -> str:
    """A Markdown table: a row for each line, a column for each stage."""
    stages = [lines(size, stage) for stage in STAGES]
    rows = [f"| {size}: kernels, TFLOP, GB, ms | {' | '.join(stage.name for stage in STAGES)} |", "|---" * 5 + "|"]
    for parts in zip(*stages, strict=True):
        rows.append(f"| {parts[0].name} | {' | '.join(cell([part]) for part in parts)} |")
    rows.append(f"| tiny kernels, gaps (assumed) |{f' {1e3 * GAPS:.1f} ms |' * len(STAGES)}")
    rows.append(f"| together | {' | '.join(cell(parts, GAPS) for parts in stages)} |")
    rates = [PIECES / (sum(part.seconds for part in parts) + GAPS) for parts in stages]
    rows.append(f"| **target tokens/s** | {' | '.join(f'**{rate:,.0f}**' for rate in rates)} |")
    return "\n".join(rows)


def long_sentences() -> str:
    """A Markdown table for base: the own operator against varlen on sentences of one length, or on one among WMT's."""
    config, _ = SIZES["base"]
    # Of varlen's work on a batch of WMT's lengths, one call of a backward pass.
    call = attention_flops(config, "varlen") * 5 / 7 / (3 * config.layers) / RATES["tile"]
    rows = ["| positions | all sentences: operations | one sentence: time |", "|---:|---:|---:|"]
    for length in LIMITS:
        own, forward = sentence_flops(config, "operator", length)
        seconds = (own - forward) / (RATES["tile"] / AT_ONCE)
        rows.append(f"| {length} | {own / sentence_flops(config, 'varlen', length)[0]:.2f} | {seconds / call:.2f} |")
    return "\n".join(rows)


def sentence_flops(config: Model, attention: str, length: int) -> tuple[float, float]:
    """Operations of one head over one sentence, not causal: forward and backward together, and forward alone."""
    tiles = np.array(-(-length // TILES[attention]))
    product = float(tiles**2) * product_of_tiles(config, attention)
    return product * float(products_of(attention, tiles)), product * 2


def cell(parts: Sequence[Line], more: float = 0.0) -> str:
    """The counts of lines, without those that are 0, and their milliseconds with ``more`` seconds."""
    kernels, flops, moved = (sum(getattr(part, what) for part in parts) for what in ("kernels", "flops", "bytes"))
    counts = [f"{kernels}", f"{flops / 1e12:.2f} T" if flops else "", f"{moved / 1e9:.1f} GB" if moved else ""]
    seconds = sum(part.seconds for part in parts) + more
    return ", ".join([*filter(None, counts), f"{1e3 * seconds:.1f} ms"])


def main() -> None:
    for size in ("base", "big"):
        print(table(size), end="\n\n")
    print(long_sentences())


if __name__ == "__main__":
    main()
