"""The data of the plots: measures over the versions of a model, and the curves of a training."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from flows.website.registry import ModelEntry, Score, VersionEntry
from model.metric_names import (
    BLEU,
    BLEU_PAPER,
    CHRF,
    DEV_BLEU,
    DEV_PERPLEXITY,
    GRADIENT_NORM,
    LEARNING_RATE,
    LOSS,
    PERPLEXITY,
    TER,
    TOKENS_PER_SECOND,
)
from tasks.evaluation.training_log import metric_rows

FIRST_MEASURES = (BLEU, BLEU_PAPER, CHRF, TER, PERPLEXITY)
"""Measures that the list of measures begins with; BLEU is the one that is drawn first."""
TRAINING_MEASURES: dict[str, tuple[str, Callable[[float], float]]] = {
    "training hours": ("seconds", lambda seconds: seconds / 3600),
    "parameters": ("parameters", float),
    "updates": ("updates", float),
}
"""Facts of the training that are drawn too: the fact, and its unit in the plot."""


def over_versions(model: ModelEntry) -> dict[str, Any]:
    """For each measure one series per set: values, ends of the 95 % interval, None where a version has none.

    A line breaks at such a version (``breaks``), since nothing was measured there.
    """
    entries = list(reversed(model.versions))
    found = {name for entry in entries for scores in entry.scores.values() for name in scores}
    measures = [name for name in FIRST_MEASURES if name in found] + sorted(found - {*FIRST_MEASURES})
    plots = [{"name": name, "series": _series(entries, name)} for name in measures]
    for name, (fact, in_unit) in TRAINING_MEASURES.items():
        values = [in_unit(entry.training[fact]) if fact in entry.training else None for entry in entries]
        if any(values):
            plots.append({"name": name, "series": [{"name": "training", "values": values}]})
    numbers = [entry.version.version for entry in entries]
    return {"label": model.name, "xLabel": "version", "x": numbers, "breaks": True, "measures": plots}


def _series(entries: Sequence[VersionEntry], measure: str) -> list[dict[str, Any]]:
    """One series for each set; a set whose references changed has one for each digest, as their scores differ."""
    groups = dict.fromkeys(
        (name, entry.references(name))
        for entry in entries
        for name, scores in entry.scores.items()
        if measure in scores
    )
    names = [name for name, _ in groups]
    series = []
    for name, references in groups:
        label = name if names.count(name) == 1 else f"{name} (references {references[:8]})"
        scores = [_score(entry, name, references, measure) for entry in entries]
        drawn: dict[str, Any] = {"name": label, "values": [each and each.value for each in scores]}
        if any(each and each.low is not None for each in scores):
            drawn |= {"low": [each and each.low for each in scores], "high": [each and each.high for each in scores]}
        series.append(drawn)
    return series


def _score(entry: VersionEntry, name: str, references: str, measure: str) -> Score | None:
    return entry.scores.get(name, {}).get(measure) if entry.references(name) == references else None


CURVES = (LOSS, PERPLEXITY, DEV_PERPLEXITY, DEV_BLEU, LEARNING_RATE, GRADIENT_NORM, TOKENS_PER_SECOND)
MOST_POINTS = 300
"""Points of a curve that are drawn; of a longer log every second, third, … row."""


def training_curves(file: Path | None, label: str) -> dict[str, Any]:
    """Each metric of the log by update, in the form of ``static/plot.js``; no measures without a readable log."""
    try:
        rows = metric_rows(file) if file else []
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # an altered log
        rows = []
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


def _finite(value: object) -> float | None:
    """Four digits of a number, which a plot shows; None for what is no finite number."""
    if isinstance(value, int | float) and math.isfinite(value):
        return float(f"{value:.4g}")
    return None
