"""Our rows beside the paper's: the tables of ``repro paper`` as page, Markdown and JSON, and the table of one run.

Tables 2 and 3 have all rows of the Transformer: rows that were not run show the paper's figures. Rows that the paper
does not have come first, in their own table.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from model.config.paper_models import TABLE_3
from model.metric_names import BLEU, BLEU_PAPER_UNTWEAKED, PERPLEXITY
from tasks.evaluation.html import BASE, Picture, environment, score_text
from tasks.evaluation.paper_figures import NOT_IN_PAPER, PEERS, ROWS
from tasks.evaluation.paper_row import PaperComparison
from tasks.tables import read_table

NOTES = tuple(row["note"] for row in read_table(BASE / "paper_notes.tsv"))
NOT_RUN = "not run"
PAPER_CORPUS = "wmt14-ende"
SHAPE_COLUMNS = ("N", "d_model", "d_ff", "h", "d_k", "d_v", "P_drop", "ε_ls", "train steps")
Cells = dict[str, str]
"""A row by the names of its columns, which are short as in the paper, since a terminal is narrow."""


def row_cells(name: str, line: PaperComparison | None) -> Cells:
    """The cells of a row, empty for a missing number; if it was not run, the paper's figures only."""
    published = ROWS[name]
    paper = published.figures
    ours = line.ours if line else {}
    gap = line.differences if line else {}
    processor = {"cuda": "GPU", "cpu": "CPU"}.get(ours.get("device", ""), "")
    return {
        "row": f"{name}, failed" if line and line.failure else name,
        "set": ours["set"] + (f", {ours['sentences']:,}" if "sentences" in ours else "") if line else NOT_RUN,
        "PPL, paper": _number(paper, PERPLEXITY, "{:.2f}"),
        "PPL, ours": _number(ours, PERPLEXITY, "{:.2f} *"),
        "BLEU, paper": _number(paper, BLEU, "{:.1f}"),
        "by protocol": published.protocol,
        "BLEU, ours, that protocol": score_text(ours, published.metric),
        "differs by": _number(gap, BLEU, "{:+.2f}"),
        "BLEU, ours, paper_untweaked": score_text(ours, BLEU_PAPER_UNTWEAKED),
        "BLEU, ours, 13a": score_text(ours, BLEU),
        "params, paper": _number(paper, "parameters", "{:.0f}M", 1e-6),
        "params, ours": _number(ours, "parameters", "{:.2f}M", 1e-6),
        "FLOPs, paper": _number(paper, "flops", "{:.1e}"),
        "FLOPs, ours, counted": _number(ours, "flops", "{:.2e}"),
        "FLOPs, ours, hours at peak": _number(ours, "device_flops", "{:.2e}"),
        "weights": ("the last" if line.row.averaged == 1 else f"mean of {line.row.averaged}") if line else "",
        "updates": _number(ours, "updates", "{:,.0f}"),
        "pieces seen": _number(ours, "target_tokens", "{:.2f}M", 1e-6),
        "hours": _number(ours, "hours", f"{{:.2f}} {processor}".strip()),
    }


def run_table(line: PaperComparison) -> dict[str, Any]:
    """The comparison for the report of a run: names and cells of the table's row."""
    return {
        "table": line.row.published.table,
        "row": line.row.row,
        "conditions": line.row.conditions,
        "cells": [(name, cell) for name, cell in row_cells(line.row.row, line).items() if cell],
        "notes": NOTES,
    }


def as_json(line: PaperComparison) -> dict[str, Any]:
    """Plain JSON: the row, the paper's figures, ours, and the differences."""
    paper = line.row.published
    return {
        **asdict(line.row),
        "conditions": line.row.conditions,
        "paper": {"table": paper.table, "set": paper.set_name, "averaged": paper.averaged, "protocol": paper.protocol}
        | dict(paper.figures),
        "ours": dict(line.ours),
        "differences": line.differences,
        "failure": line.failure,
    }


def _number(values: Mapping[str, Any], name: str, form: str, times: float = 1) -> str:
    return form.format(values[name] * times if times != 1 else values[name]) if name in values else ""


@dataclass(frozen=True)
class PaperTable:
    title: str
    note: str
    cells: Sequence[Cells]

    @property
    def columns(self) -> list[str]:
        """The columns that have a value."""
        return [column for column in self.cells[0] if any(row[column] for row in self.cells)]

    @property
    def rows(self) -> list[list[str]]:
        return [[row[column] for column in self.columns] for row in self.cells]


def paper_tables(lines: Sequence[PaperComparison]) -> list[PaperTable]:
    """Rows beyond the paper if any, Table 2, Table 3, and other systems."""
    by_row = {line.row.row: line for line in lines}
    table_2 = [row_cells(name, by_row.get(name)) for name, row in ROWS.items() if row.table == 2]
    table_3 = [_with_shape(name, by_row) for name, row in ROWS.items() if row.table == 3]
    beyond = [row_cells(name, line) for name, line in by_row.items() if ROWS[name].table == NOT_IN_PAPER]
    variants = " ".join(f"{name}: {row.about}." for name, row in ROWS.items() if row.about and name in by_row)
    shapes = "Shapes are the paper's; empty cells are those of base."
    compared = "One hypothesis file gives many scores: compare only within one protocol and one set."
    published = [
        {"system": peer.system, "set": peer.set_name, "BLEU": peer.bleu, "protocol": peer.protocol}
        | {"our metric": peer.metric, "notes": peer.notes, "source": peer.source}
        for peer in PEERS
    ]
    return [
        *([PaperTable("Not in the paper", f"Variants of base. {variants}", beyond)] if beyond else []),
        PaperTable("Table 2: BLEU and training cost", "", table_2),
        PaperTable("Table 3: variations of the Transformer", shapes, table_3),
        PaperTable("Published, WMT14 English-German", compared, published),
    ]


def introduction(lines: Sequence[PaperComparison]) -> list[str]:
    """How the rows differ from the paper's, and whether scores can be compared."""
    rows: dict[str, list[str]] = {}
    for line in lines:
        if line.row.conditions:
            rows.setdefault(line.row.conditions, []).append(line.row.row)
    sentences = []
    for conditions, names in rows.items():
        are_all = len(names) == len(lines) > 1
        sentences.append(f"{'All rows that ran' if are_all else ', '.join(names)}. {conditions}")
    if any(line.row.corpus != PAPER_CORPUS for line in lines):
        sentences.append(
            "Scores on another corpus than the paper's say nothing about its scores: compare our rows with each other."
        )
    return sentences


def _with_shape(name: str, by_row: Mapping[str, PaperComparison]) -> Cells:
    """The cells of a row of Table 3 with the paper's shape, in full for base and for others where it differs."""
    shapes = []
    for row in ("base", name):
        model, training = TABLE_3[row]
        sizes = (model.layers, model.d_model, model.d_ff, model.heads, model.d_k, model.d_v, model.p_drop)
        shapes.append([*map(str, sizes), str(training.label_smoothing), f"{training.updates // 1_000}K"])
    base, own = shapes
    cells = own if name == "base" else [value if value != plain else "" for value, plain in zip(own, base, strict=True)]
    if TABLE_3[name][0].positions == "learned":
        cells[-1] = "learned positions"
    found = row_cells(name, by_row.get(name))
    return {"row": found["row"], **dict(zip(SHAPE_COLUMNS, cells, strict=True)), **found}


def render(
    template: str,
    title: str,
    lines: Sequence[PaperComparison],
    settings: Sequence[str] = (),
    picture: Picture | None = None,
) -> str:
    """The tables as Markdown (``paper_page.md``) or as a self-contained HTML page with a picture of the trainings.

    ``settings`` are the settings that every row was given.
    """
    values = {
        "title": title,
        "settings": settings,
        "tables": paper_tables(lines),
        "failures": [(line.row.row, line.failure) for line in lines if line.failure],
        "introduction": introduction(lines),
        "notes": NOTES,
        "picture": picture,
    }
    return environment(BASE).get_template(template).render(values)
