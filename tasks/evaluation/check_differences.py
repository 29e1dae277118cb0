"""The difference of two trainings at the dev checks that both have, check by check.

Two curves may differ by less than each of them moves; the difference at equal updates shows it. Older trainings have no
``dev_bleu``, and one that was not asked for it (``training.dev_bleu``) has none either.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from model.metric_names import DEV_BLEU, DEV_PERPLEXITY
from tasks.evaluation.training_log import metric_rows

HALF = 2
"""Checks before and after one whose moving mean is taken; ``flows/website/static/compare.js`` takes as many."""
WINDOW = 2 * HALF + 1
ERRORS = 2
"""Standard errors on either side of a moving mean that its band covers."""
BAND = f"band: ± {ERRORS} standard errors of the mean of up to {WINDOW} neighbouring checks (not between seeds)"


@dataclass(frozen=True)
class CheckDifferences:
    """One measure: for each update its difference, the mean of ``WINDOW`` checks around it, and that mean's error.

    ``dev_bleu`` in points, B - A; ``dev_perplexity`` in percent of A, since it falls by orders of magnitude. An error
    is None where fewer than three checks are near.
    """

    measure: str
    updates: list[int]
    differences: list[float]
    means: list[float]
    errors: list[float | None]


def check_differences(a: Path, b: Path) -> list[CheckDifferences]:
    """B against A for each measure that both logs have at equal updates, by the paths of their ``metrics.jsonl``."""
    rows_a = {row["done"]: row for row in metric_rows(a)}
    rows_b = {row["done"]: row for row in metric_rows(b)}
    found = []
    for measure in (DEV_BLEU, DEV_PERPLEXITY):
        updates = [update for update, row in rows_a.items() if measure in row and measure in rows_b.get(update, ())]
        pairs = [(float(rows_a[update][measure]), float(rows_b[update][measure])) for update in updates]
        differences = [100 * (y / x - 1) if measure == DEV_PERPLEXITY else y - x for x, y in pairs]
        near = [differences[max(0, place - HALF) : place + HALF + 1] for place in range(len(differences))]
        means = [statistics.fmean(each) for each in near]
        errors = [standard_error(each) for each in near]
        found.append(CheckDifferences(measure, updates, differences, means, errors))
    return [each for each in found if each.updates]


def standard_error(values: Sequence[float]) -> float | None:
    """Of the mean of values; None for fewer than three."""
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) >= 3 else None
