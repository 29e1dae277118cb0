"""Makes tables of runs, costs, seeds, sweeps, rows of the paper and the service, and formats their numbers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from rich.console import Group, JustifyMethod
from rich.filesize import decimal
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from flows.views.stage_words import why
from infra.guards.shown_text import shown_lines
from infra.tracking.model_version import headline
from infra.tracking.run_description import number_text
from model.metric_names import BLEU, BLEU_LC, BLEU_LC_LOSS, BLEU_LOSS, BLEU_MOSES_LC, CHRF, PERPLEXITY
from tasks.durations import duration
from tasks.engine.limits import counted_apart
from tasks.engine.planner import StageResult
from tasks.evaluation.html import score_text
from tasks.evaluation.seed_spread import SeedSpread

if TYPE_CHECKING:
    from flows.inspection.cost import RunCost
    from flows.tuning.sweep import SweepResults
    from infra.service.supervision import ProgramState

CARD = {"BLEU": BLEU, "chrF": CHRF, "perplexity": PERPLEXITY, "BLEU lost": BLEU_LOSS, "lost lower-cased": BLEU_LC_LOSS}
"""The columns of a score card, with their facts."""
LOWER_CASED = {"BLEU lower-cased": BLEU_LC, "of Moses tokens": BLEU_MOSES_LC}
"""The first columns of a model that writes lower case."""
FACT_LENGTHS = range(1, 41)
"""Lengths of shown facts. Longer ones, such as checksums, and empty ones stand only in the manifest."""
COLOURS = {"completed": "green", "cached": "cyan", "failed": "red", "miss": "yellow", "waits": "yellow"}


def stage_table(rows: Sequence[StageResult]) -> Table:
    """Make one row per stage: state, time, and why it runs, else its facts."""
    columns = ("stage", "item", "state", "time")
    table = plain_table(*columns, "facts", right=("time",), whole=columns)
    for row in rows:
        colour = COLOURS[row.state]
        seconds = duration(row.seconds) if row.seconds else ""
        state = f"[{colour}]{row.label}[/{colour}]"
        detail = cell(why(row, is_short=True) or format_facts(row.facts))
        table.add_row(row.stage, cell(row.item), state, seconds, detail)
    return table


def score_card(scores: Mapping[str, Mapping[str, Any]]) -> Group:
    """Make one row per set with its scores: BLEU with interval, chrF, perplexity; the signature stands below.

    Omits empty columns: translations of another system have no perplexity.
    """
    has_case = headline(*scores.values()) == BLEU
    titles = CARD if has_case else LOWER_CASED | CARD
    columns = {title: name for title, name in titles.items() if any(name in facts for facts in scores.values())}
    rows = ([each, *(score_text(facts, name) for name in columns.values())] for each, facts in scores.items())
    table = plain_table("set", *columns, rows=rows, right=columns, whole=columns)
    signatures = dict.fromkeys(f"{facts['signature']}" for facts in scores.values() if "signature" in facts)
    notes = [f"BLEU, in brackets its 95 % interval: {shown_lines(each)}" for each in signatures]
    if not has_case:
        notes.append("this model writes lower case: for BLEU with case every capital of the reference is an error")
    return Group(table, *(Text(note, "dim") for note in notes))


def score_table(scores: Mapping[str, Mapping[str, Any]]) -> Table:
    """Show scores by every protocol: one row per metric, one column per evaluation set."""
    return plain_table("score", *scores, rows=score_rows(scores), right=scores)


def seed_table(seeds: Sequence[int], spreads: Sequence[SeedSpread]) -> Table:
    """Make one row per metric and set: the value of each seed, mean, standard deviation, and the ensemble."""
    ensemble = ["ensemble"] if any(spread.ensemble is not None for spread in spreads) else []
    numbers = (*(f"seed {seed}" for seed in seeds), "mean", "deviation", *ensemble)
    table = plain_table("set", "score", *numbers, right=numbers)
    for spread in spreads:
        cells = [spread.values.get(seed, "") for seed in seeds]
        cells += [spread.summary.get(name, "") for name in ("mean", "deviation")]
        cells += ["" if spread.ensemble is None else spread.ensemble] if ensemble else []
        table.add_row(spread.set_name, spread.measure, *(number_text(cell) for cell in cells))
    return table


def sweep_table(found: SweepResults) -> Table:
    """Make one row per trial with settings, score and time: the best score first, failed trials last."""
    numbers = (found.resolved.measure, "time")
    table = plain_table("trial", "state", *found.resolved.space, *numbers, right=numbers, whole=("time",))
    for row in found.ranked():
        settings = [setting.partition("=")[2] for setting in row.settings] or [""] * len(found.resolved.space)
        score = cell(row.failure) if row.value is None else number_text(row.value)
        table.add_row(f"{row.number}", row.state, *settings, score, duration(row.seconds))
    return table


PAGE_ALONE = {
    "BLEU, ours, paper_untweaked",
    "params, paper",
    "FLOPs, paper",
    "FLOPs, ours, counted",
    "FLOPs, ours, hours at peak",
    "weights",
    "updates",
    "pieces seen",
}
"""Columns that only the page of ``repro paper`` shows, since a terminal is narrow."""


def paper_table(rows: Sequence[Mapping[str, str]]) -> Table:
    """Show rows beside the paper's values, without ``PAGE_ALONE`` and empty columns. Never breaks words or numbers."""
    shown = [column for column in rows[0] if column not in PAGE_ALONE and any(row[column] for row in rows)]
    cells = ([row[column] for column in shown] for row in rows)
    table = plain_table(*shown, rows=cells, right={*shown} - {"row", "set"})
    for column, name in zip(table.columns, shown, strict=True):
        column.min_width = max(len(word) for text in (name, *(row[name] for row in rows)) for word in text.split())
    return table


def state_table(states: Sequence[ProgramState]) -> Table:
    """Make one row per program: state, process id, start, health, address and log."""
    columns = ("program", "state", "pid", "since", "health")
    table = plain_table(*columns, "link", "log", whole=columns)
    for each in states:
        colour = "green" if each.healthy else "yellow"
        health = f"[{colour}]{'healthy' if each.healthy else 'no answer'}[/{colour}]"
        table.add_row(each.name, each.state, str(each.pid or ""), each.since, health, each.link, each.log)
    return table


def cell(text: str) -> str:
    """Convert untrusted text for Rich, without markup and control characters."""
    return escape(shown_lines(text))


def cost_table(cost: RunCost) -> Table:
    """Make one row per stage that is not cached, then the total."""
    named = ("stage", "item", "state")
    numbers = ("time", "disk")
    table = plain_table(*named, *numbers, "estimated from", right=numbers, whole=(*named, *numbers))
    for each in cost.stages:
        seconds = "?" if each.seconds is None else duration(each.seconds)
        size = "?" if each.bytes is None else size_text(round(each.bytes))
        table.add_row(each.stage, cell(each.item), each.state, seconds, size, cell(each.basis))
    return table


def cost_sentence(cost: RunCost) -> str:
    """Summarise the cost: ``demo: about 5 min 02 s, 21.30 MB``."""
    if not cost.stages:
        return f"{cost.run}: everything is cached; it costs nothing"
    least = "at least" if cost.unknown else "about"
    named = ", ".join(cost.unknown) if len(cost.unknown) <= 3 else f"{len(cost.unknown)} stages"
    unknown = f"; without {named}: times are known after the first run of such a stage" if cost.unknown else ""
    return f"{cost.run}: {least} {duration(cost.seconds)}, {size_text(round(cost.bytes))}{unknown}"


def plain_table(
    *columns: str, rows: Iterable[Sequence[str]] = (), right: Collection[str] = (), whole: Collection[str] = ()
) -> Table:
    """Make a table of plain text without lines.

    The columns ``right`` are right-aligned, the cells of ``whole`` stay on one line.
    """
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        justify: JustifyMethod = "right" if name in right else "left"
        is_whole = name in whole
        table.add_column(cell(name), justify=justify, no_wrap=is_whole, overflow="ellipsis" if is_whole else "fold")
    for row in rows:
        table.add_row(*map(cell, row))
    return table


def score_rows(scores: Mapping[str, Mapping[str, Any]]) -> list[list[str]]:
    """Make one row per numeric score of any set: its name, then its value in each set."""
    cards = scores.values()
    names = dict.fromkeys(name for card in cards for name, value in card.items() if isinstance(value, int | float))
    return [[name, *(number_text(card.get(name, "")) for card in cards)] for name in names]


def format_facts(facts: Mapping[str, Any]) -> str:
    """Write the first six short facts on one line: ``pairs 28,996 · rejected 4``."""
    facts = counted_apart(facts)
    short = [(n, v) for n, v in facts.items() if isinstance(v, int | float | str) and len(str(v)) in FACT_LENGTHS]
    return " · ".join(f"{name.replace('_', ' ')} {number_text(value)}" for name, value in short[:6])


size_text = partial(decimal, precision=2)
"""Bytes as ``1.25 GB``, ``30.00 kB`` or ``251 bytes``."""
