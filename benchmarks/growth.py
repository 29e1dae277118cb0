"""Tables and draws how time and memory grow, from rows whose ``what`` is like ``clean, 10,000 pairs``."""

import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from matplotlib.ticker import EngFormatter

from tasks.evaluation.plots import LIGHT, dress, label_log_axis, legend, new_figure, png

SECTION = "Scaling"
Curve = dict[int, float]
"""Figures by size, ascending."""
UNITS = {"CPU s": "CPU seconds", "MiB": "peak memory, MiB"}
THINGS = {"pairs": "Preparation", "runs": "Commands on a root"}
MOST = 1.1
"""The greatest exponent that counts as linear."""
COLORS = (LIGHT.source, LIGHT.target, "#3f8f5b", "#8a4fa3", LIGHT.ink)


def curves(rows: Sequence[Mapping[str, Any]], thing: str) -> dict[str, dict[str, Curve]]:
    """By name and unit, the figures of each number of ``pairs`` or ``runs``; the last row of a size counts."""
    found: dict[str, dict[str, Curve]] = {}
    for row in (each for each in rows if each["section"] == SECTION):
        name, size = row["what"].split(", ", 1)
        if size.endswith(f" {thing}"):
            count = int(size.removesuffix(f" {thing}").replace(",", ""))
            found.setdefault(name, {}).setdefault(row["unit"], {})[count] = row["figure"]
    return {name: {unit: dict(sorted(found[name][unit].items())) for unit in UNITS} for name in found}


def exponent(curve: Curve) -> float:
    """The slope of a curve's last decade in logarithms: 1 is linear. Its end is the least size less than a tenth."""
    last = max(curve)
    first = max(size for size in curve if size * 10 <= last)
    return math.log(curve[last] / curve[first]) / math.log(last / first)


def tables(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A table for pairs and one for runs: a line for each stage or command, a column for each size."""
    lines = []
    for thing in THINGS:
        found = curves(rows, thing)
        sizes = sorted({size for units in found.values() for curve in units.values() for size in curve})
        lines += [f"| CPU s, MiB | {' | '.join(f'{size:,} {thing}' for size in sizes)} | exponents |"]
        lines += [f"|---|{'---:|' * len(sizes)}---:|"]
        for name, units in found.items():
            cells = [", ".join(f"{curve[size]:,g}" for curve in units.values() if size in curve) for size in sizes]
            grown = [exponent(curve) for curve in units.values()]
            slopes = ", ".join(f"**{each:.2f}**" if each > MOST else f"{each:.2f}" for each in grown)
            lines.append(f"| {name} | {' | '.join(cells)} | {slopes} |")
        lines.append("")
    return [*lines, *provenance(rows)]


def provenance(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """How the figures were made, one line for each way."""
    ways = dict.fromkeys((row["machine"], row["commit"], row["date"], row["note"], row["command"]) for row in rows)
    return [
        f"- {machine}, `{commit}`, {date}: `{command}`{note and f'; {note}'}"
        for machine, commit, date, note, command in ways
    ]


def picture(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Time and memory by pairs, and by runs, below each other, all axes logarithmic; grey lines are linear."""
    figure = new_figure(5.4, 10.8, LIGHT)
    panels = iter(figure.subplots(4, 1))
    for thing, title in THINGS.items():
        found = curves(rows, thing)
        for unit, label in UNITS.items():
            axes = next(panels)
            dress(axes, LIGHT, f"{title}: {label} by {thing}", label)
            axes.set_xscale("log")
            axes.set_yscale("log")
            for color, (name, units) in zip(COLORS, found.items(), strict=False):
                curve = units[unit]
                words = f"{name} n^{exponent(curve):.2f}"
                axes.plot([*curve], [*curve.values()], color=color, lw=1.6, marker="o", ms=4, label=words)
            size, most = max((max(curve), curve[max(curve)]) for units in found.values() for curve in [units[unit]])
            limits = axes.axis()
            axes.plot([size / 1000, size], [most / 1000, most], color=LIGHT.muted, lw=0.9, ls=":", label="linear")
            axes.axis(limits)
            axes.set_xlabel(thing, color=LIGHT.muted)
            label_log_axis(axes.xaxis)
            label_log_axis(axes.yaxis)
            axes.xaxis.set_major_formatter(EngFormatter(sep=""))
            legend(axes, LIGHT)
    return png(figure)
