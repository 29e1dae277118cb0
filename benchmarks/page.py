"""Write ``README.md`` of this folder and its picture: ``python benchmarks/page.py``.

A line of ``results.jsonl`` is one measured figure: ``section``, ``what``, ``figure``, ``spread`` (least and greatest,
an interval, or all values), ``unit``, ``peer`` (empty: this project), ``machine``, ``commit``, ``date``, ``command``,
``limit`` (which the figure should keep) and ``note``. A field is empty where nobody wrote it down.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import growth

HERE = Path(__file__).parent
ROWS = HERE / "results.jsonl"
PAGE = HERE / "README.md"
TEMPLATE = HERE / "README.template"
PICTURE = HERE / "growth.png"
FIELDS = (
    *("section", "what", "figure", "spread", "unit", "peer", "machine", "commit", "date"),
    *("command", "limit", "note"),
)
KINDS = ("Zen 3", "Zen 4", "Zen 5", "Intel")
"""Kinds of machines, by the beginning of their names."""
PLACE = re.compile(r"^\[\[(.+)\]\]$", re.MULTILINE)
"""Where the template has the table of a section."""
HEADLINE = "What people wait for"


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


COLUMNS = ("what", "figure", "unit", "peer", "machine", "commit", "note")


def tables(rows: list[dict[str, Any]]) -> list[str]:
    """A table for each command of a section; the machine and the commit stand above it if all its rows share them."""
    lines: list[str] = []
    for command in dict.fromkeys(row["command"] for row in rows):
        cells = [_cells(row) for row in rows if row["command"] == command]
        shared = {name: cells[0][name] for name in ("machine", "commit") if len({cell[name] for cell in cells}) == 1}
        names = [name for name in COLUMNS if name not in shared and any(cell[name] for cell in cells)]
        above = filter(None, [f"`{command}`" if command else "", *shared.values()])
        lines += [
            *([] if not lines else [""]),
            ", ".join(above),
            "",
            f"| {' | '.join(names)} |",
            f"|{''.join('---:|' if name == 'figure' else '---|' for name in names)}",
            *(f"| {' | '.join(cell[name] for name in names)} |" for cell in cells),
        ]
    return lines


def _cells(row: dict[str, Any]) -> dict[str, str]:
    """A row as text, a cell for each of ``COLUMNS``."""
    figure = number(row["figure"]) + (f" ({row['spread']})" if row["spread"] else "")
    commit = " ".join(filter(None, [f"`{row['commit']}`" if row["commit"] else "", row["date"]]))
    return {**row, "figure": figure, "commit": commit}


def page(rows: list[dict[str, Any]]) -> str:
    """The whole page. Raises ValueError for rows of a section that the template lacks."""
    template = TEMPLATE.read_text()
    places = PLACE.findall(template)
    for section in dict.fromkeys(row["section"] for row in rows):
        if section not in places:
            raise ValueError(f"{TEMPLATE.name} has no place for the section {section}")

    def lines(place: re.Match[str]) -> str:
        if place[1] == HEADLINE:
            return "\n".join(headline(rows))
        form = growth.tables if place[1] == growth.SECTION else tables
        return "\n".join(form([row for row in rows if row["section"] == place[1]]))

    return PLACE.sub(lines, template)


if __name__ == "__main__":
    PAGE.write_text(page(read_rows()))
    PICTURE.write_bytes(growth.picture(read_rows()))
