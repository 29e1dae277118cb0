"""Signs of collapse of a training, by layer, from the rows of its dev checks (docs/files.md).

Takes ``metrics.jsonl``; returns curves for ``network_plots`` and the last values for tables. Older trainings have fewer
of the metrics, or none.
"""

import re
from collections import defaultdict
from pathlib import Path

from model.metric_names import (
    ATTENTION_COVERAGE_CROSS,
    ATTENTION_ENTROPY,
    DECODER_COSINE,
    DECODER_NORM,
    ENCODER_COSINE,
    ENCODER_NORM,
)
from tasks.evaluation.metric_rows import metric_rows

SIGNS = {
    ENCODER_COSINE: "cosine between positions, encoder",
    DECODER_COSINE: "cosine between positions, decoder",
    ENCODER_NORM: "norm of x + f(x), encoder",
    DECODER_NORM: "norm of x + f(x), decoder",
    ATTENTION_ENTROPY: "entropy of a query's cross-attention, nats",
    ATTENTION_COVERAGE_CROSS: "coverage of the source by cross-attention",
}
"""What is drawn for each layer, by the metric's name without its number."""

Curve = list[tuple[int, float]]
LayerCurves = dict[str, dict[int, Curve]]
"""By the name of the sign and the layer from 1: its values by update."""


def layer_curves(metrics: Path) -> LayerCurves:
    """The curves of ``SIGNS`` that a training has; the last row of an update counts."""
    found: defaultdict[str, defaultdict[int, Curve]] = defaultdict(lambda: defaultdict(list))
    for row in metric_rows(metrics):
        for name, value in row.items():
            numbered = re.fullmatch(r"(.+)_(\d+)", name)
            if numbered and numbered[1] in SIGNS:
                found[numbered[1]][int(numbered[2])].append((int(row["done"]), float(value)))
    return {sign: {layer: found[sign][layer] for layer in sorted(found[sign])} for sign in SIGNS if sign in found}


def last_values(curves: LayerCurves) -> dict[str, list[float]]:
    """The last value of each sign, layer by layer."""
    return {sign: [curve[-1][1] for curve in layers.values()] for sign, layers in curves.items()}
