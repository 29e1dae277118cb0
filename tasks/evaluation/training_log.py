"""Reads ``metrics.jsonl`` of a training: learning curves, speed, signs of collapse by layer. Older files have fewer."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model import metric_names
from tasks.lazy_libraries import NDArray, np

SIGNS = {
    metric_names.ENCODER_COSINE: "cosine between positions, encoder",
    metric_names.DECODER_COSINE: "cosine between positions, decoder",
    metric_names.ENCODER_NORM: "norm of x + f(x), encoder",
    metric_names.DECODER_NORM: "norm of x + f(x), decoder",
    metric_names.RESIDUAL_RATIO_ENCODER_ATTENTION: "|f(x)| / |x|, encoder self-attention",
    metric_names.RESIDUAL_RATIO_DECODER_ATTENTION: "|f(x)| / |x|, decoder self-attention",
    metric_names.RESIDUAL_RATIO_ENCODER_FEED_FORWARD: "|f(x)| / |x|, encoder feed-forward",
    metric_names.RESIDUAL_RATIO_DECODER_FEED_FORWARD: "|f(x)| / |x|, decoder feed-forward",
    metric_names.ATTENTION_ENTROPY_ENCODER: "entropy of encoder self-attention, nats",
    metric_names.ATTENTION_ENTROPY_DECODER: "entropy of decoder self-attention, nats",
    metric_names.RESIDUAL_RATIO_DECODER_CROSS: "|f(x)| / |x|, decoder cross-attention",
    metric_names.ATTENTION_ENTROPY: "entropy of cross-attention, nats",
    metric_names.ATTENTION_COVERAGE_CROSS: "coverage of the source by cross-attention",
}
"""Signs of collapse, recorded for each layer: the metric's name without the layer's number."""

Curve = list[tuple[int, float]]
LayerCurves = dict[str, dict[int, Curve]]
"""By the name of the sign and the layer from 1: its values by update."""


def metric_rows(metrics: Path) -> list[dict[str, Any]]:
    """One row for each update of ``metrics.jsonl``, in their order; ``done`` is the update.

    A dev check writes its own row. A resumed training repeats the updates since its checkpoint, and a slower one may
    end before the last row of the interrupted one, so a row replaces all those of later updates above it.
    """
    rows: dict[int, dict[str, Any]] = {}
    for line in metrics.read_text().splitlines():
        row = json.loads(line)
        # The facts of a finished training stand at the last planned update, even if the training ended early.
        if "done" in row and "facts" not in row:
            update = int(row["done"])
            while rows and next(reversed(rows)) > update:
                rows.popitem()
            rows.setdefault(update, {}).update(row)
    return [*rows.values()]


@dataclass(frozen=True)
class Curves:
    """Learning curves; ``dev_*`` at the updates that validated. Losses are in nats per target piece."""

    updates: NDArray[np.float64]
    loss: NDArray[np.float64]
    nll: NDArray[np.float64]
    learning_rate: NDArray[np.float64]
    dev_updates: NDArray[np.float64]
    dev_perplexity: NDArray[np.float64]


def training_curves(metrics: Path) -> Curves:
    rows = metric_rows(metrics)

    def column(name: str, where: str) -> NDArray[np.float64]:
        return np.array([row[name] for row in rows if where in row], np.float64)

    return Curves(
        updates=column("done", metric_names.LOSS),
        loss=column(metric_names.LOSS, metric_names.LOSS),
        nll=column(metric_names.NLL, metric_names.LOSS),
        learning_rate=column(metric_names.LEARNING_RATE, metric_names.LOSS),
        dev_updates=column("done", metric_names.DEV_PERPLEXITY),
        dev_perplexity=column(metric_names.DEV_PERPLEXITY, metric_names.DEV_PERPLEXITY),
    )


def training_speed(metrics: Path) -> dict[str, float]:
    """Medians of target tokens per second and share of padding."""
    rows = metric_rows(metrics)
    columns = {
        name: [row[name] for row in rows if name in row]
        for name in (metric_names.TOKENS_PER_SECOND, metric_names.PADDING)
    }
    return {name: float(np.median(values)) for name, values in columns.items() if values}


def layer_curves(metrics: Path) -> LayerCurves:
    """The curves of ``SIGNS`` that a training has."""
    found: defaultdict[str, defaultdict[int, Curve]] = defaultdict(lambda: defaultdict(list))
    for row in metric_rows(metrics):
        for name, value in row.items():
            numbered = re.fullmatch(r"(.+)_(\d+)", name)
            if numbered and numbered[1] in SIGNS:
                found[numbered[1]][int(numbered[2])].append((int(row["done"]), float(value)))
    return {sign: {layer: found[sign][layer] for layer in sorted(found[sign])} for sign in SIGNS if sign in found}
