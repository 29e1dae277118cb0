"""Comparisons with the paper as cells of a table, as the table of one run, and as JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from model.metric_names import BLEU, BLEU_PAPER_UNTWEAKED, GPU_KWH, PERPLEXITY
from tasks.evaluation.paper_figures import PEERS
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
)


def row_cells(line: PaperComparison) -> tuple[str, ...]:
    """One row of the table; a missing number is an empty cell."""
    paper = line.row.published.figures
    ours = line.ours
    gap = line.differences
    name = f"{line.row.row}, failed" if line.failure else line.row.row
    return (
        name,
        _set(ours),
        _number(paper, PERPLEXITY, "{:.2f}"),
        _number(ours, PERPLEXITY, "{:.2f} *"),
        _number(paper, BLEU, "{:.1f}"),
        line.row.published.protocol,
        _score(ours, line.row.published.metric),
        _number(gap, BLEU, "{:+.2f}"),
        _score(ours, BLEU_PAPER_UNTWEAKED),
        _score(ours, BLEU),
        _number(paper, "parameters", "{:.0f}M", 1e-6),
        _number(ours, "parameters", "{:.2f}M", 1e-6),
        _number(paper, "flops", "{:.1e}"),
        _number(ours, "flops", "{:.2e}"),
        _number(ours, "device_flops", "{:.2e}"),
        _weights(line.row.averaged),
        _number(ours, "updates", "{:,.0f}"),
        _number(ours, "target_tokens", "{:.2f}M", 1e-6),
        _hours(ours),
        _number(ours, GPU_KWH, "{:.3f}"),
    )


def run_table(line: PaperComparison) -> dict[str, Any]:
    """The comparison for the report of a run: cells (figure, paper's, ours, difference), and the peers."""
    paper = line.row.published
    row = line.row
    ours = line.ours
    figures = paper.figures
    gap = _number(line.differences, BLEU, "{:+.2f}") or "not comparable"
    pieces = f"perplexity a piece; ours of {row.vocabulary:,} byte-level pieces, another vocabulary than the paper's"
    at_rate = ((figures, "flops"), (ours, "device_flops"))
    cells = [
        ("set", f"{paper.set_name}, {paper.sentences:,}", _set(ours), ""),
        (f"BLEU, protocol {paper.protocol}", _number(figures, BLEU, "{:.1f}"), _score(ours, paper.metric), gap),
        ("BLEU, paper_untweaked", "", _score(ours, BLEU_PAPER_UNTWEAKED), ""),
        *([] if paper.protocol == "13a" else [("BLEU, 13a, cased", "", _score(ours, BLEU), "")]),
        (pieces, _number(figures, PERPLEXITY, "{:.2f}"), _number(ours, PERPLEXITY, "{:.2f}"), ""),
        ("parameters", _number(figures, "parameters", "{:.0f}M", 1e-6), _number(ours, "parameters", "{:,}"), ""),
        ("weights", _weights(paper.averaged), _weights(row.averaged), ""),
        ("updates", _number(figures, "updates", "{:,.0f}"), _number(ours, "updates", "{:,.0f}"), ""),
        ("training FLOPs, counted", "", _number(ours, "flops", "{:.2e}"), ""),
        ("training FLOPs, hours at the device's rate", *(_number(f, n, "{:.2e}") for f, n in at_rate), ""),
        ("target pieces seen", "", _number(ours, "target_tokens", "{:,}"), ""),
        ("hours", _number(figures, "gpu_hours", "{:.0f} GPU (P100)"), _hours(ours), ""),
        ("energy, kWh", "", _number(ours, GPU_KWH, "{:.3f}"), ""),
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
    """Published scores of other systems, one row each."""
    return [(p.system, p.bleu, p.protocol, p.metric, p.set_name, p.notes, p.source) for p in PEERS]


def conditions(lines: Sequence[PaperComparison]) -> list[str]:
    """How rows differ from the paper's, one sentence for all rows that differ in the same way."""
    rows: dict[str, list[str]] = {}
    for line in lines:
        if line.row.conditions:
            rows.setdefault(line.row.conditions, []).append(line.row.row)
    shown = {
        words: ", ".join(names) if len(lines) == 1 or len(names) < len(lines) else "All rows"
        for words, names in rows.items()
    }
    return [f"{names}. {words}" for words, names in shown.items()]


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


def _score(ours: Mapping[str, Any], name: str) -> str:
    return f"{ours[name]:.2f} ({ours[f'{name}_low']:.2f}–{ours[f'{name}_high']:.2f})" if name in ours else ""


def _set(ours: Mapping[str, Any]) -> str:
    return ", ".join([ours["set"], *([f"{ours['sentences']:,}"] if "sentences" in ours else [])])


def _weights(averaged: int) -> str:
    return "the last" if averaged == 1 else f"mean of {averaged}"


def _hours(ours: Mapping[str, Any]) -> str:
    kind = {"cuda": "GPU", "cpu": "CPU"}.get(ours.get("device", ""), "")
    return _number(ours, "hours", f"{{:.2f}} {kind}".strip())
