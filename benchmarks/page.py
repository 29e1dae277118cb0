"""Write ``README.md`` of this folder from ``results.jsonl``: ``python benchmarks/page.py`` (``--check`` only compares).

A line of ``results.jsonl`` is one measured figure: ``section``, ``what``, ``figure``, ``spread`` (least and greatest, an
interval, or all values), ``unit``, ``peer`` (empty: this project), ``machine``, ``commit``, ``date``, ``command``,
``limit`` (what people should not wait longer for) and ``note``. A field is empty where nobody wrote it down.
"""

import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROWS = HERE / "results.jsonl"
PAGE = HERE / "README.md"
FIELDS = (
    "section",
    "what",
    "figure",
    "spread",
    "unit",
    "peer",
    "machine",
    "commit",
    "date",
    "command",
    "limit",
    "note",
)
KINDS = ("Zen 3", "Zen 4", "Intel")
"""Kinds of machines, by the beginning of their names."""
HEAD = """# Measurements

Generated from [results.jsonl](results.jsonl) by `python benchmarks/page.py`; what was tried is in the [notebook](notebook.md). Every row was measured, with the command
beside it, `--help` of which says more. An absolute time on shared CPUs says what to expect, no more; ratios are taken within one run. No GPU has run this project ([docs/gpu.md](../docs/gpu.md)).

## What people wait for

Two quiet cores; in brackets the peer of a ratio. Bold figures keep the limit. Zen 3 has AVX2, Zen 4 AVX-512, Intel AVX-512 and AMX.
"""
NOTES = {
    "Quality": """BLEU is sacreBLEU 13a, cased, detokenised (`nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0`), beam 4, alpha 0.6 (2 for the longer run of `multi30k-ende`); in brackets the
bootstrap 95 % interval, or the scores of the seeds. Settings were chosen on dev data alone. The demo's grammar was simplified while a model's errors on its test set were looked at.

- `SMALL`: `--set training.precision=bf16 --set training.batch_tokens=1024 --set training.updates=14000 --set training.warmup=1000 --set training.peak=3e-3 --set training.checkpoint_every=100 --set training.dev_every=500`
- `FULL`: `--set synthetic.references=true --set model.layers=4 --set model.d_model=128 --set model.d_k=32 --set model.d_v=32 --set model.p_drop=0.2`
- `HOUR`: `--set training.precision=bf16 --set training.batch_tokens=2000 --set training.updates=3600 --set training.schedule=linear --set training.warmup=400 --set training.peak=2e-3 --set training.checkpoint_every=100 --set training.dev_every=600 --set model.p_drop=0.1`
""",
    "Training": """Target pieces without padding; contestants take turns at every update over the same batches. small: d_model 256, 3+3 layers, 4 heads, d_ff 1024, 8,000 entries, 7.6M parameters; batches of
4,096 tokens, float32. A ratio is this project's rate over the peer's.
""",
    "Serving": """`repro serve` as it is by default (CTranslate2, float32, beam 4). Each client sends one sentence of 12 words (the 105 of `val`, in `val.en`) and waits for the answer; server and clients share
the two cores. `multi30k-ende/1` may be `repro run multi30k-ende --set training.updates=2000 --set training.batch_tokens=2048`; `lines.en` is the corpus's English four times.
""",
    "Preparation": "Made-up text with lines as long and words as many as in WMT14 (`benchmarks/text.py`), 37,000 pieces, two threads, page cache warm.\n",
    "Threads that wait": "The column *peer* says how two threads on two cores wait for each other.\n",
}  # fmt: skip
"""What is said before a section's table."""


def read_rows(path: Path = ROWS) -> list[dict[str, Any]]:
    """The rows of a file. Raises ValueError naming the line whose fields are not ``FIELDS``."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for number, row in enumerate(rows, 1):
        if tuple(row) != FIELDS:
            raise ValueError(
                f"{path.name}, line {number}: fields are {', '.join(row)}, allowed are {', '.join(FIELDS)}"
            )
    return rows


def number(figure: float) -> str:
    return f"{figure:,}" if figure >= 1000 else f"{figure:g}" if figure != round(figure) else f"{figure:.0f}"


def keeps(figure: float, limit: str) -> bool:
    """Whether a figure keeps a limit like ``≤ 2.5`` or ``≥ 15 (aim)``."""
    sign, bound, *_ = limit.split()
    return figure <= float(bound) if sign == "≤" else figure >= float(bound)


def headline(rows: list[dict[str, Any]]) -> list[str]:
    """One line for each limit, with the last figure of each kind of machine."""
    found: dict[tuple[str, str, str], dict[str, str]] = {}
    for row in rows:
        if not row["limit"]:
            continue
        peer = f" ({row['peer']})" if row["peer"] else ""
        line = (row["what"] + peer, row["unit"].split(",")[0], row["limit"])
        kind = next(kind for kind in KINDS if row["machine"].startswith(kind))
        figure = number(row["figure"])
        found.setdefault(line, {})[kind] = f"**{figure}**" if keeps(row["figure"], row["limit"]) else figure
    lines = [f"| what | unit | limit | {' | '.join(KINDS)} |", f"|---|---|---|{'---:|' * len(KINDS)}"]
    for (what, unit, limit), figures in found.items():
        lines.append(f"| {what} | {unit} | {limit} | {' | '.join(figures.get(kind, '') for kind in KINDS)} |")
    return lines


def table(rows: list[dict[str, Any]]) -> list[str]:
    """A section's rows, one a line."""
    lines = [
        "| what | figure | unit | peer | machine | commit | note | command |",
        "|---|---:|---|---|---|---|---|---|",
    ]
    for row in rows:
        figure = number(row["figure"]) + (f" ({row['spread']})" if row["spread"] else "")
        commit = " ".join(filter(None, [f"`{row['commit']}`" if row["commit"] else "", row["date"]]))
        command = f"`{row['command']}`" if row["command"] else ""
        cells = (row["what"], figure, row["unit"], row["peer"], row["machine"], commit, row["note"], command)
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def page(rows: list[dict[str, Any]]) -> str:
    """The whole page."""
    lines = [HEAD, *headline(rows)]
    for section in dict.fromkeys(row["section"] for row in rows):
        lines += ["", f"## {section}", ""]
        if section in NOTES:
            lines.append(NOTES[section])
        lines += table([row for row in rows if row["section"] == section])
    return "\n".join(lines) + "\n"


def main() -> None:
    made = page(read_rows())
    if "--check" in sys.argv[1:]:
        sys.exit(0 if PAGE.read_text() == made else f"{PAGE.name} is out of date: python benchmarks/page.py")
    PAGE.write_text(made)


if __name__ == "__main__":
    main()
