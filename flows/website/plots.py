"""Prepares the data of the plots: measures over the versions of a model, and training curves."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from flows.website.registry import ModelEntry, VersionEntry
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
"""The first measures of the list; BLEU is drawn first."""
TRAINING_MEASURES: dict[str, tuple[str, Callable[[float], float]]] = {
    "training hours": ("seconds", lambda seconds: seconds / 3600),
    "parameters": ("parameters", float),
    "updates": ("updates", float),
}
"""Facts of the training that are also drawn: the fact, and its conversion to the plot's unit."""


def over_versions(model: ModelEntry) -> dict[str, Any]:
    """Make one series per measure and set: values and ends of the 95 % interval, None if a version has none.

    The line has a gap at a version without a value (``breaks``).
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
    """Make one series per set and digest of its references: scores with other references are not comparable."""
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
        of_entries = [entry.scores.get(name, {}) if entry.references(name) == references else {} for entry in entries]
        scores = [each.get(measure) for each in of_entries]
        drawn: dict[str, Any] = {"name": label, "values": [each and each.value for each in scores]}
        if any(each and each.low is not None for each in scores):
            drawn |= {"low": [each and each.low for each in scores], "high": [each and each.high for each in scores]}
        series.append(drawn)
    return series


CURVES = (LOSS, PERPLEXITY, DEV_PERPLEXITY, DEV_BLEU, LEARNING_RATE, GRADIENT_NORM, TOKENS_PER_SECOND)
MOST_POINTS = 300
"""Most points of a drawn curve; of a longer log, every second, third, … row is drawn."""


def training_curves(file: Path | None, label: str) -> dict[str, Any]:
    """Read each metric of the log by update, for ``static/plot.js``; no measures if the log is unreadable."""
    try:
        rows = metric_rows(file) if file else []
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # an edited log
        rows = []
    # Rows of dev checks are few: keep all.
    step = math.ceil(len(rows) / MOST_POINTS) or 1
    rows = [row for number, row in enumerate(rows) if number % step == 0 or DEV_PERPLEXITY in row]
    names = [name for name in CURVES if any(name in row for row in rows)]
    plots = [
        {
            "name": name,
            "log": name.endswith(PERPLEXITY),  # falls from about the vocabulary size to a few
            "series": [{"name": label, "values": [_finite(row.get(name)) for row in rows]}],
        }
        for name in names
    ]
    return {"label": label, "xLabel": "update", "x": [row["done"] for row in rows], "measures": plots}


def _finite(value: object) -> float | None:
    """Round a number to four digits for a plot; None for all that is no finite number."""
    if isinstance(value, int | float) and math.isfinite(value):
        return float(f"{value:.4g}")
    return None
