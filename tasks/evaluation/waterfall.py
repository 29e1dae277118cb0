"""Draws a waterfall: bars that lead from one score to another, each with its label above it."""

import textwrap
from collections.abc import Sequence
from itertools import accumulate

from tasks.evaluation.plots import Theme, dress, new_figure, png

LABEL_CHARACTERS = 62
"""Of a label over the whole width."""
Labelled = tuple[str, float]


def waterfall(begin: Labelled, steps: Sequence[Labelled], end: Labelled, theme: Theme) -> bytes:
    """From ``begin`` by each step to ``end``: gains and losses in two colours, each with its number."""
    reached = list(accumulate((step for _, step in steps), initial=begin[1]))
    lowest = min(reached)
    room = max(max(reached) - lowest, 0.1)
    left = max(0.0, lowest - 0.35 * room)
    bars = [(*begin, left), *((label, step, start) for (label, step), start in zip(steps, reached, strict=False))]
    figure = new_figure(5.4, 0.8 + 0.52 * (len(bars) + 1), theme)
    axes = figure.subplots()
    dress(axes, theme, "", "")
    axes.grid(visible=False, axis="y")
    axes.grid(axis="x", color=theme.grid, lw=0.8)
    for place, (label, value, start) in enumerate([*bars, (*end, left)]):
        is_end = place in (0, len(bars))
        width = value - left if is_end else value
        color = theme.strong if is_end else theme.source if value > 0 else theme.target
        axes.barh(place + 0.18, width, left=start, height=0.4, color=color)
        number = f" {value:.2f}" if is_end else f" {value:+.2f}"
        axes.text(max(start, start + width), place + 0.18, number, va="center", fontsize=10.5, color=theme.ink)
        shown = textwrap.shorten(label, LABEL_CHARACTERS, placeholder=" …")
        axes.text(left, place - 0.2, shown, va="center", fontsize=10.5, color=theme.ink, parse_math=False)
    axes.set_ylim(len(bars) + 0.6, -0.5)
    axes.set_xlim(left, max(reached) + 0.22 * room)
    axes.set_yticks([])
    axes.set_xlabel(f"BLEU{'; the axis does not begin at 0' if left else ''}", color=theme.muted, fontsize=9)
    return png(figure)
