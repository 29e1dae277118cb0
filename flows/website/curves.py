"""The curves of a training, from its log ``metrics.jsonl``."""

import json
import math
from pathlib import Path
from typing import Any

from model.metric_names import (
    DEV_BLEU,
    DEV_PERPLEXITY,
    GRADIENT_NORM,
    LEARNING_RATE,
    LOSS,
    PERPLEXITY,
    TOKENS_PER_SECOND,
)

CURVES = (LOSS, PERPLEXITY, DEV_PERPLEXITY, DEV_BLEU, LEARNING_RATE, GRADIENT_NORM, TOKENS_PER_SECOND)
MOST_POINTS = 300
"""Points of a curve that are drawn; of a longer log every second, third, … row."""


def training_curves(file: Path | None, label: str) -> dict[str, Any]:
    """Each metric of the log by update, in the form of ``static/plot.js``; no measures without a readable log."""
    rows = _rows(file) if file else []
    # Rows of a dev check are few, and are kept.
    step = math.ceil(len(rows) / MOST_POINTS) or 1
    rows = [row for number, row in enumerate(rows) if number % step == 0 or DEV_PERPLEXITY in row]
    names = [name for name in CURVES if any(name in row for row in rows)]
    plots = [
        {
            "name": name,
            "log": name.endswith(PERPLEXITY),  # it begins near the size of the vocabulary and ends at a few
            "series": [{"name": label, "values": [_finite(row.get(name)) for row in rows]}],
        }
        for name in names
    ]
    return {"label": label, "xLabel": "update", "x": [row["done"] for row in rows], "measures": plots}


def _rows(file: Path) -> list[dict[str, Any]]:
    """One row for each update, in their order: a dev check has a row of its own, a resumed training repeats some."""
    rows: dict[int, dict[str, Any]] = {}
    try:
        for line in file.read_text().splitlines():
            row = json.loads(line)
            if isinstance(row, dict) and isinstance(row.get("done"), int):
                rows.setdefault(row["done"], {}).update(row)
    except (OSError, ValueError):
        return []
    return [rows[update] for update in sorted(rows)]


def _finite(value: object) -> float | None:
    """Four digits of a number, which a plot shows; None for what is no finite number."""
    if isinstance(value, int | float) and math.isfinite(value):
        return float(f"{value:.4g}")
    return None
