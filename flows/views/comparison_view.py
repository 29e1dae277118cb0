"""Makes the tables of a comparison: differing fields and scores. Each system has a column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.table import Table

from flows.views.tables import cell, plain_table
from infra.tracking.run_description import number_text
from tasks.evaluation.system_comparison import Difference
from tasks.registration.differences import DifferingField

if TYPE_CHECKING:
    from flows.inspection.seed_groups import GroupComparison


def differing_table(names: Sequence[str], fields: Sequence[DifferingField]) -> RenderableType:
    """Make one row per field in which the systems differ."""
    rows = ([field.name, *field.values] for field in fields)
    return plain_table("differs in", *names, rows=rows) if fields else "no recorded field differs"


def scores_table(names: Sequence[str], comparisons: Sequence[Mapping[str, Sequence[Difference]]]) -> Table:
    """Make one row per set and metric: the first system's value, then value, gain and p-value of each other system."""
    table = plain_table("set", "score", *names, "protocol", right=names)
    by_row = [{(name, row.measure): row for name, rows in sets.items() for row in rows} for sets in comparisons]
    for set_name, measure in dict.fromkeys(place for rows in by_row for place in rows):
        found = [rows.get((set_name, measure)) for rows in by_row]
        known = next(row for row in found if row)
        cells = [  # the smallest p-value of 1,000 resampled sets is 0.001
            f"{number_text(row.b)} {row.b - row.a:+.2f} p {f'{row.p:.3f}' if row.p >= 0.001 else '< 0.001'}"
            if row
            else ""
            for row in found
        ]
        table.add_row(set_name, measure, number_text(known.a), *cells, known.protocol)
    return table


def groups_table(first: str, others: Sequence[tuple[str, GroupComparison]]) -> Table:
    """Make one row per set and measure of each other group: both means, their difference, and the verdict."""
    table = plain_table("set", "score", first, "against", "", "difference", "95 % interval", "could show", "verdict")
    for name, each in others:
        gap = each.difference
        figures = (f"{gap.effect:+.2f}", gap.interval, f"{gap.detectable:.2f}", gap.verdict())
        table.add_row(each.set_name, each.measure, _group(each.a), cell(name), _group(each.b), *figures)
    return table


def _group(scores: Mapping[int, float]) -> str:
    """Format mean, standard deviation and number of seeds: ``39.12 ± 0.28 (3)``."""
    return f"{fmean(scores.values()):.2f} ± {stdev(scores.values()):.2f} ({len(scores)})"
