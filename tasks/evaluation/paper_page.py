"""Lines against the paper as tables that a person reads: cells for a terminal, Markdown, and one HTML page."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tasks.evaluation.paper_figures import PEERS
from tasks.evaluation.paper_row import PROTOCOL, PaperComparison

COLUMNS = (  # the paper's own short words: a terminal is narrow
    "row",
    "set",
    "PPL, paper",
    "PPL, ours",
    "BLEU, paper",
    "BLEU, ours, paper's protocol",
    "differs by",
    "BLEU, ours, 13a",
    "params, paper",
    "params, ours",
    "weights",
    "updates",
    "pieces seen",
    "hours",
    "kWh",
)
PEER_COLUMNS = ("system", "BLEU", "protocol", "set", "notes")
NOTES = (
    "Set is ours; the paper's figures are of newstest2013 (3,000 lines, Table 3) and newstest2014 (Table 2).",
    "BLEU of the paper's protocol (Moses tokens, hyphens of compounds split) stands beside the paper's; 13a is "
    "sacreBLEU's, cased: the two are not to be compared. In brackets the bootstrap 95 % interval.",
    "A difference is ours less the paper's, and only where corpus, set and all settings are the paper's. The paper "
    "does not say which newstest2014 it means: the full one, 3,003 lines, is assumed.",
    "Perplexity (PPL) is per piece of one's own vocabulary, unsmoothed: * marks another vocabulary than the paper's, "
    "of which no difference is taken.",
    "Weights: the last checkpoint (Table 3, §6.2) or the mean of the last ones (Table 2, §6.1). Hours are of all GPUs "
    "or, where it says so, CPU processes together; kWh is what the GPUs' meters counted, where they do.",
)


def row_cells(line: PaperComparison) -> tuple[str, ...]:
    """One row of the table; a number that is not there is an empty cell."""
    paper, ours = line.row.published.figures, line.ours
    gap = line.differences
    name = f"{line.row.row}, failed" if line.failure else line.row.row
    return (
        name,
        _set(ours),
        _number(paper, "perplexity", "{:.2f}"),
        _number(ours, "perplexity", "{:.2f} *"),
        _number(paper, "bleu", "{:.1f}"),
        _score(ours, PROTOCOL),
        _number(gap, "bleu", "{:+.2f}"),
        _score(ours, "bleu"),
        _number(paper, "parameters", "{:.0f}M", 1e-6),
        _number(ours, "parameters", "{:.2f}M", 1e-6),
        _weights(line.row.averaged),
        _number(ours, "updates", "{:,.0f}"),
        _number(ours, "target_tokens", "{:.2f}M", 1e-6),
        _hours(ours),
        _number(ours, "gpu_kwh", "{:.3f}"),
    )


def run_table(line: PaperComparison) -> dict[str, Any]:
    """One row for the page of its run: cells of what, the paper's, ours and the difference, and the peers."""
    paper, row, ours = line.row.published, line.row, line.ours
    figures, gap = paper.figures, _number(line.differences, "bleu", "{:+.2f}") or "not comparable"
    pieces = f"perplexity a piece; ours of {row.vocabulary:,} byte-level pieces, another vocabulary than the paper's"
    cells = [
        ("set", f"{paper.set_name}, {paper.sentences:,}", _set(ours), ""),
        ("BLEU, the paper's protocol", _number(figures, "bleu", "{:.1f}"), _score(ours, PROTOCOL), gap),
        ("BLEU, 13a, cased", "", _score(ours, "bleu"), ""),
        (pieces, _number(figures, "perplexity", "{:.2f}"), _number(ours, "perplexity", "{:.2f}"), ""),
        ("parameters", _number(figures, "parameters", "{:.0f}M", 1e-6), _number(ours, "parameters", "{:,}"), ""),
        ("weights", _weights(paper.averaged), _weights(row.averaged), ""),
        ("updates", _number(figures, "updates", "{:,.0f}"), _number(ours, "updates", "{:,.0f}"), ""),
        ("target pieces seen", "", _number(ours, "target_tokens", "{:,}"), ""),
        ("hours", _number(figures, "gpu_hours", "{:.0f} GPU (P100)"), _hours(ours), ""),
        ("energy, kWh", "", _number(ours, "gpu_kwh", "{:.3f}"), ""),
    ]
    return {
        "table": paper.table,
        "row": row.row,
        "conditions": row.conditions,
        "cells": [cell for cell in cells if cell[1] or cell[2]],
        "peer_columns": PEER_COLUMNS,
        "peers": peers() if paper.languages == "English-German" else [],
    }


def peers() -> list[tuple[str, ...]]:
    """What others published, a row each."""
    return [(p.system, p.bleu, p.protocol, p.set_name, p.notes) for p in PEERS]


def markdown(title: str, lines: Sequence[PaperComparison]) -> str:
    """The comparison and the peers as Markdown."""
    failures = [f"- {line.row.row}: {line.failure}" for line in lines if line.failure]
    told = [*conditions(lines), *NOTES]
    return "\n".join(
        [
            f"# Against the paper: {title}",
            "",
            *_table(COLUMNS, [row_cells(line) for line in lines]),
            "",
            *(["Failed:", "", *failures, ""] if failures else []),
            *(f"- {note}" for note in told),
            "",
            "## Published, WMT14 English-German",
            "",
            *_table(PEER_COLUMNS, peers()),
            "",
        ]
    )


def page(title: str, lines: Sequence[PaperComparison]) -> str:
    """The comparison as one HTML page that needs nothing else."""
    from jinja2 import Environment, StrictUndefined

    template = Path(__file__).with_name("paper_page.html").read_text()
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(template).render(
        title=title,
        columns=COLUMNS,
        rows=[row_cells(line) for line in lines],
        failures=[(line.row.row, line.failure) for line in lines if line.failure],
        notes=[*conditions(lines), *NOTES],
        peer_columns=PEER_COLUMNS,
        peers=peers(),
    )


def conditions(lines: Sequence[PaperComparison]) -> list[str]:
    """In what the rows are other than the paper's, once for all that are so alike."""
    rows: dict[str, list[str]] = {}
    for line in lines:
        if line.row.conditions:
            rows.setdefault(line.row.conditions, []).append(line.row.row)
    return [f"{', '.join(names)}. {words}" for words, names in rows.items()]


def as_json(line: PaperComparison) -> dict[str, Any]:
    """The line with the paper's figures, its differences, and what they rest on."""
    paper = line.row.published
    return {
        **asdict(line.row),
        "conditions": line.row.conditions,
        "paper": {"table": paper.table, "set": paper.set_name, "averaged": paper.averaged, **paper.figures},
        "ours": dict(line.ours),
        "differences": line.differences,
        "failure": line.failure,
    }


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [columns, ["---"] * len(columns), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return ["| " + " | ".join(line) + " |" for line in lines]


def _number(values: Mapping[str, Any], name: str, form: str, times: float = 1) -> str:
    return form.format(values[name] * times if times != 1 else values[name]) if name in values else ""


def _score(ours: Mapping[str, Any], name: str) -> str:
    return f"{ours[name]:.2f} ({ours[f'{name}_low']:.2f}–{ours[f'{name}_high']:.2f})" if name in ours else ""


def _set(ours: Mapping[str, Any]) -> str:
    return ", ".join([ours["set"], *([f"{ours['sentences']:,}"] if "sentences" in ours else [])])


def _weights(averaged: int) -> str:
    return "the last" if averaged == 1 else f"mean of {averaged}"


def _hours(ours: Mapping[str, Any]) -> str:
    kind = {"cuda": "GPU", "cpu": "CPU"}.get(ours.get("device", ""), "")
    return _number(ours, "hours", f"{{:.2f}} {kind}".strip())
