"""The paper's Tables 2 and 3 and §6.3 in full, with our results where a row was run.

Rows that were not run keep the paper's figures. Rows that the paper does not have come first, in a table of their own.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from model.config.presets import TABLE_3
from model.metric_names import BLEU, PERPLEXITY
from tasks.evaluation.html import render
from tasks.evaluation.paper_figures import NOT_IN_PAPER, PARSING, ROWS, TABLE_2_SYSTEMS
from tasks.evaluation.paper_page import COLUMNS, NOTES, PEER_COLUMNS, conditions, peers, row_cells
from tasks.evaluation.paper_row import PaperComparison
from tasks.evaluation.pictures import Picture

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


@dataclass(frozen=True)
class PaperTable:
    """A table of the page; columns without any value are left out."""

    title: str
    note: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @staticmethod
    def of(title: str, note: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> "PaperTable":
        shown = [i for i in range(len(columns)) if any(row[i] for row in rows)]
        picked = tuple(tuple(row[i] for i in shown) for row in rows)
        return PaperTable(title, note, tuple(columns[i] for i in shown), picked)


def paper_tables(lines: Sequence[PaperComparison]) -> list[PaperTable]:
    """Rows beyond the paper if any, Table 2, the systems that it compares with, Table 3, §6.3, and other systems."""
    by_row = {line.row.row: line for line in lines}
    table_2 = [_cells(name, by_row) for name, row in ROWS.items() if row.table == 2]
    table_3 = [_with_shape(name, by_row) for name, row in ROWS.items() if row.table == 3]
    beyond = [row_cells(line) for name, line in by_row.items() if ROWS[name].table == NOT_IN_PAPER]
    return [
        *([PaperTable.of("Not in the paper", _variants_note(by_row), COLUMNS, beyond)] if beyond else []),
        PaperTable.of("Table 2: BLEU and training cost", "", COLUMNS, table_2),
        PaperTable.of(
            "Table 2, as printed",
            "newstest2014: BLEU and training FLOPs of the systems that the paper compares with.",
            ("system", "BLEU, EN-DE", "BLEU, EN-FR", "FLOPs, EN-DE", "FLOPs, EN-FR"),
            TABLE_2_SYSTEMS,
        ),
        PaperTable.of(
            "Table 3: variations of the Transformer",
            "Shapes are the paper's; empty cells are those of base.",
            (COLUMNS[0], *SHAPE_COLUMNS, *COLUMNS[1:]),
            table_3,
        ),
        PaperTable.of(
            "§6.3: English constituency parsing (Table 4)",
            "Parsing: not run, the treebank is licensed.",
            ("parser", "training", "F1 on WSJ 23, paper", "F1, ours"),
            [(*row, NOT_RUN) for row in PARSING],
        ),
        PaperTable.of(
            "Published, WMT14 English-German",
            "One hypothesis file gives many scores: compare only within one protocol and one set.",
            PEER_COLUMNS,
            peers(),
        ),
    ]


def _variants_note(rows: Collection[str]) -> str:
    """What the variants among the rows are."""
    return " ".join(["Variants of base.", *(f"{name}: {says}." for name, says in VARIANTS.items() if name in rows)])


def introduction(lines: Sequence[PaperComparison]) -> list[str]:
    """How the rows differ from the paper's, and whether scores can be compared."""
    elsewhere = any(line.row.corpus != PAPER_CORPUS for line in lines)
    warning = [
        "Scores on another corpus than the paper's say nothing about its scores: compare our rows with each other."
    ]
    return conditions(lines) + (warning if elsewhere else [])


def _cells(name: str, by_row: Mapping[str, PaperComparison]) -> tuple[str, ...]:
    """The cells of a row of ``COLUMNS``; of a row that was not run, the paper's figures."""
    if name in by_row:
        return row_cells(by_row[name])
    paper: Mapping[str, Any] = ROWS[name].figures
    forms = {PERPLEXITY: "{:.2f}", BLEU: "{:.1f}", "parameters": "{:.0f}M", "flops": "{:.1e}"}
    columns = {
        "PPL, paper": PERPLEXITY,
        "BLEU, paper": BLEU,
        "params, paper": "parameters",
        "FLOPs, paper": "flops",
    }
    shown = {"row": name, "set": NOT_RUN, "by protocol": ROWS[name].protocol}
    for column, figure in columns.items():
        if figure in paper:
            shown[column] = forms[figure].format(paper[figure] / (1e6 if figure == "parameters" else 1))
    return tuple(shown.get(column, "") for column in COLUMNS)


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
    first, *rest = _cells(name, by_row)
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
        parts += [*_markdown_table(table.columns, table.rows), ""]
    return "\n".join([*parts, "## Notes", "", *(f"- {note}" for note in NOTES), ""])


def page(
    title: str, lines: Sequence[PaperComparison], picture: Picture | None = None, settings: Sequence[str] = ()
) -> str:
    """The tables as a self-contained HTML page, with a picture of the trainings."""
    return render(
        "paper_page.html",
        title=title,
        settings=settings,
        tables=paper_tables(lines),
        failures=[(line.row.row, line.failure) for line in lines if line.failure],
        introduction=introduction(lines),
        notes=NOTES,
        picture=picture,
    )


def _markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [columns, ["---"] * len(columns), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return ["| " + " | ".join(line) + " |" for line in lines]
