"""Our rows beside the paper's: the tables of ``repro paper`` as a page, as Markdown and as JSON, and that of one run.

Tables 2 and 3 have all rows of the Transformer: those that were not run keep the paper's figures. Rows that the paper
does not have come first, in a table of their own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from infra.tracking.run_description import table as markdown_table
from model.config.paper_models import TABLE_3
from model.metric_names import BLEU, BLEU_PAPER_UNTWEAKED, GPU_KWH, PERPLEXITY
from tasks.evaluation.html import BASE, Picture, environment, score_text
from tasks.evaluation.paper_figures import NOT_IN_PAPER, PEERS, ROWS
from tasks.evaluation.paper_row import PaperComparison

COLUMNS = (  # short names, as in the paper: a terminal is narrow
    "row",
    "set",
    "PPL, paper",
    "PPL, ours",
    "BLEU, paper",
    "by protocol",
    "BLEU, ours, that protocol",
    "differs by",
    "BLEU, ours, paper_untweaked",
    "BLEU, ours, 13a",
    "params, paper",
    "params, ours",
    "FLOPs, paper",
    "FLOPs, ours, counted",
    "FLOPs, ours, hours at peak",
    "weights",
    "updates",
    "pieces seen",
    "hours",
    "kWh",
)
PEER_COLUMNS = ("system", "BLEU", "protocol", "our metric", "set", "notes", "source")
NOTES = (
    "The column set says what our figures were measured on; the paper's are for newstest2013 (3,000 lines, Table 3) "
    "and newstest2014 (Table 2).",
    "BLEU is compared only within one protocol. English-German by paper: Moses tokens, compound hyphens split, "
    "typographic quotes of the references made plain; by paper_untweaked: the same with the references as published. "
    "English-French: 13a tokens, no hyphen split. 13a is sacreBLEU's, cased. Brackets hold the 95 % bootstrap "
    "interval.",
    "A difference is ours minus the paper's, shown only if corpus, set and all settings are the paper's. The paper "
    "does not say which newstest2014 it uses: the full one, 3,003 lines, is assumed.",
    "Perplexity (PPL) is per piece of the system's own vocabulary, without smoothing: * marks a vocabulary other than "
    "the paper's, for which no difference is computed.",
    "Weights: the last checkpoint (Table 3, §6.2) or the mean of the last ones (Table 2, §6.1). Hours are summed over "
    "all GPUs or, where marked, CPU processes; kWh is the reading of the GPUs' meters, if they have one.",
    "Training FLOPs: the paper multiplies its hours by the rate of a P100, estimated as 9.5e12 FLOP/s. Ours are "
    "counted: 2 for each weight and token of a matrix product forward, 4 backward, without padding. Hours at "
    "peak multiplies our hours by the data sheet's rate of the GPU, if it is known.",
    "§6.3, English constituency parsing, is not reproduced: the treebank is licensed.",
)
NOT_RUN = "not run"
PAPER_CORPUS = "wmt14-ende"
VARIANTS = {
    "post-ln": "the norm follows each residual sum, as in the paper",
    "pre-ln": "the norm precedes each sublayer",
    "own-greedy": "this project's layers, greedy search",
    "own-beam": "this project's layers, beam search",
    "torch-greedy": "torch.nn.Transformer, greedy search",
    "torch-beam": "torch.nn.Transformer, beam search",
}
"""The variants of base that the paper does not have, and what each is."""
SHAPE_COLUMNS = ("N", "d_model", "d_ff", "h", "d_k", "d_v", "P_drop", "ε_ls", "train steps")


def row_cells(line: PaperComparison) -> tuple[str, ...]:
    """One row of the table; a missing number is an empty cell."""
    return _cells(line.row.row, line)


def _cells(name: str, line: PaperComparison | None) -> tuple[str, ...]:
    """The cells of a row of ``COLUMNS``; of a row that was not run, the paper's figures."""
    published = ROWS[name]
    paper = published.figures
    ours = line.ours if line else {}
    gap = line.differences if line else {}
    return (
        f"{name}, failed" if line and line.failure else name,
        _set(ours) if line else NOT_RUN,
        _number(paper, PERPLEXITY, "{:.2f}"),
        _number(ours, PERPLEXITY, "{:.2f} *"),
        _number(paper, BLEU, "{:.1f}"),
        published.protocol,
        score_text(ours, published.metric),
        _number(gap, BLEU, "{:+.2f}"),
        score_text(ours, BLEU_PAPER_UNTWEAKED),
        score_text(ours, BLEU),
        _number(paper, "parameters", "{:.0f}M", 1e-6),
        _number(ours, "parameters", "{:.2f}M", 1e-6),
        _number(paper, "flops", "{:.1e}"),
        _number(ours, "flops", "{:.2e}"),
        _number(ours, "device_flops", "{:.2e}"),
        _weights(line.row.averaged) if line else "",
        _number(ours, "updates", "{:,.0f}"),
        _number(ours, "target_tokens", "{:.2f}M", 1e-6),
        _hours(ours),
        _number(ours, GPU_KWH, "{:.3f}"),
    )


def run_table(line: PaperComparison) -> dict[str, Any]:
    """The comparison for the report of a run: names and cells of the table's row."""
    return {
        "table": line.row.published.table,
        "row": line.row.row,
        "conditions": line.row.conditions,
        "cells": [(name, cell) for name, cell in zip(COLUMNS, row_cells(line), strict=True) if cell],
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


def _set(ours: Mapping[str, Any]) -> str:
    return ", ".join([ours["set"], *([f"{ours['sentences']:,}"] if "sentences" in ours else [])])


def _weights(averaged: int) -> str:
    return "the last" if averaged == 1 else f"mean of {averaged}"


def _hours(ours: Mapping[str, Any]) -> str:
    kind = {"cuda": "GPU", "cpu": "CPU"}.get(ours.get("device", ""), "")
    return _number(ours, "hours", f"{{:.2f}} {kind}".strip())


@dataclass(frozen=True)
class PaperTable:
    """A table of the page."""

    title: str
    note: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


def paper_tables(lines: Sequence[PaperComparison]) -> list[PaperTable]:
    """Rows beyond the paper if any, Table 2, Table 3, and other systems; without columns that have no value."""
    by_row = {line.row.row: line for line in lines}
    table_2 = [_cells(name, by_row.get(name)) for name, row in ROWS.items() if row.table == 2]
    table_3 = [_with_shape(name, by_row) for name, row in ROWS.items() if row.table == 3]
    beyond = [row_cells(line) for name, line in by_row.items() if ROWS[name].table == NOT_IN_PAPER]
    variants = " ".join(f"{name}: {says}." for name, says in VARIANTS.items() if name in by_row)
    return [
        *([_table("Not in the paper", f"Variants of base. {variants}", COLUMNS, beyond)] if beyond else []),
        _table("Table 2: BLEU and training cost", "", COLUMNS, table_2),
        _table(
            "Table 3: variations of the Transformer",
            "Shapes are the paper's; empty cells are those of base.",
            (COLUMNS[0], *SHAPE_COLUMNS, *COLUMNS[1:]),
            table_3,
        ),
        _table(
            "Published, WMT14 English-German",
            "One hypothesis file gives many scores: compare only within one protocol and one set.",
            PEER_COLUMNS,
            [(p.system, p.bleu, p.protocol, p.metric, p.set_name, p.notes, p.source) for p in PEERS],
        ),
    ]


def _table(title: str, note: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> PaperTable:
    shown = [place for place in range(len(columns)) if any(row[place] for row in rows)]
    return PaperTable(
        title, note, [columns[place] for place in shown], [[row[place] for place in shown] for row in rows]
    )


def introduction(lines: Sequence[PaperComparison]) -> list[str]:
    """How the rows differ from the paper's, one sentence for all rows that differ in the same way, and whether scores
    can be compared."""
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


def _with_shape(name: str, by_row: Mapping[str, PaperComparison]) -> tuple[str, ...]:
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
    first, *rest = _cells(name, by_row.get(name))
    return (first, *cells, *rest)


def markdown(title: str, lines: Sequence[PaperComparison], settings: Sequence[str] = ()) -> str:
    """The tables as Markdown; ``settings`` are those that every row was given."""
    failures = [f"- {line.row.row}: {line.failure}" for line in lines if line.failure]
    parts = [f"# Against the paper: {title}", ""]
    parts += [f"With {', '.join(f'`{each}`' for each in settings)}.", ""] if settings else []
    parts += [line for text in introduction(lines) for line in (text, "")]
    parts += ["Failed:", "", *failures, ""] if failures else []
    for table in paper_tables(lines):
        parts += [f"## {table.title}", "", *([table.note, ""] if table.note else [])]
        parts += [markdown_table(table.columns, table.rows), ""]
    return "\n".join([*parts, "## Notes", "", *(f"- {note}" for note in NOTES), ""])


def page(
    title: str, lines: Sequence[PaperComparison], picture: Picture | None = None, settings: Sequence[str] = ()
) -> str:
    """The tables as a self-contained HTML page, with a picture of the trainings."""
    return (
        environment(BASE)
        .get_template("paper_page.html")
        .render(
            title=title,
            settings=settings,
            tables=paper_tables(lines),
            failures=[(line.row.row, line.failure) for line in lines if line.failure],
            introduction=introduction(lines),
            notes=NOTES,
            picture=picture,
        )
    )
