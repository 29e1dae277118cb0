"""Tables of a comparison: what differs, the trainings, the scores. Each system has a column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.table import Table

from flows.views.tables import cell, number_text, plain_table
from model.metric_names import DEV_PERPLEXITY
from tasks.evaluation.collapse import SIGNS
from tasks.evaluation.system_comparison import Comparison
from tasks.registration.differences import DifferingField

if TYPE_CHECKING:
    from tasks.evaluation.system_comparison import History

LONGEST_VALUE = 60
"""Characters of a value that are shown; checksums and lists of modules are longer."""


def differing_table(names: Sequence[str], fields: Sequence[DifferingField]) -> Table:
    """One row per field in which the systems differ."""
    table = _with_columns("differs in", names)
    for field in fields:
        table.add_row(cell(field.name), *(cell(_cut(value)) for value in field.values))
    return table


def trainings_table(histories: Mapping[str, History]) -> Table | None:
    """Length and best dev perplexity of each training; None if no training is left."""
    if not histories:
        return None
    table = _with_columns("training", list(histories))
    best = [int(each[DEV_PERPLEXITY].argmin()) if len(each[DEV_PERPLEXITY]) else -1 for each in histories.values()]
    found = list(zip(histories.values(), best, strict=True))
    table.add_row("updates", *(number_text(int(max(each["updates"], default=0))) for each, _ in found))
    table.add_row(
        "best dev perplexity",
        *("" if at < 0 else number_text(float(each[DEV_PERPLEXITY][at])) for each, at in found),
    )
    table.add_row("at update", *("" if at < 0 else number_text(int(each["dev_updates"][at])) for each, at in found))
    return table


def scores_table(names: Sequence[str], comparisons: Sequence[Sequence[Comparison]]) -> Table:
    """One row per set and metric: the first system's value, then for each other one its value, gain and p-value."""
    table = plain_table()
    for name in ("set", "score"):
        table.add_column(name)
    for name in names:
        table.add_column(cell(name), justify="right")
    table.add_column("protocol", overflow="fold")
    by_row = [{(each.name, row.measure): row for each in sets for row in each.differences} for sets in comparisons]
    for set_name, measure in dict.fromkeys(place for rows in by_row for place in rows):
        found = [rows.get((set_name, measure)) for rows in by_row]
        known = next(row for row in found if row)
        cells = [f"{number_text(row.b)} {row.b - row.a:+.2f} p {row.p:.3f}" if row else "" for row in found]
        table.add_row(set_name, measure, number_text(known.a), *cells, known.protocol)
    return table


def collapse_table(systems: Mapping[str, Mapping[str, Sequence[float]]]) -> Table | None:
    """One row per sign of collapse: its last value in each layer, for each system; None where none was recorded."""
    if not any(systems.values()):
        return None
    table = _with_columns("at the last dev check, by layer", list(systems))
    for sign, words in SIGNS.items():
        if any(sign in each for each in systems.values()):
            cells = ("  ".join(f"{value:.3g}" for value in each.get(sign, ())) for each in systems.values())
            table.add_row(words, *cells)
    return table


def _with_columns(first: str, names: Sequence[str]) -> Table:
    table = plain_table()
    table.add_column(first, overflow="fold")
    for name in names:
        table.add_column(cell(name), overflow="fold")
    return table


def _cut(value: str) -> str:
    return value if len(value) <= LONGEST_VALUE else f"{value[: LONGEST_VALUE - 2]} …"
