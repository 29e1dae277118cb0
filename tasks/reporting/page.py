"""Renders the page of a run from ``page.html``, and formats the numbers and the text on it.

Text of the corpus is foreign: the template escapes it, and ``visible`` replaces what cannot be printed.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tasks.durations import duration

LONGEST_TEXT = 400
"""Characters of a sentence that are shown."""
WIDTH = 132
HEIGHT = 30
MARGIN = 4


def render(values: dict[str, Any]) -> str:
    """The page as HTML; a name that the template uses and ``values`` lacks is an error."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters.update(readable=readable, duration=duration, visible=visible, sparkline=sparkline)
    return environment.from_string(Path(__file__).with_suffix(".html").read_text()).render(values)


def readable(value: object) -> str:
    """A fact as text: digits in groups, dicts on one line."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {readable(inner)}" for name, inner in value.items())
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int) or not math.isfinite(value):
        return f"{value:,}"
    return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"


def visible(text: str) -> str:
    """Text for the page: unprintable characters become U+FFFD, overlong text is cut."""
    shown = "".join(c if c.isprintable() else "\ufffd" for c in text)
    return shown if len(shown) <= LONGEST_TEXT else shown[:LONGEST_TEXT] + " …"


class Svg(str):
    """A picture as text, made of numbers alone, which templates need not escape."""

    def __html__(self) -> str:
        return self


def sparkline(values: Sequence[float], bound: float, at_least: bool) -> Svg:
    """The values in their order, the limit as a dashed line, and a dot for the last and each value that breaks it."""
    low = min(*values, bound)
    high = max(*values, bound)
    step = (WIDTH - 2 * MARGIN) / max(1, len(values) - 1)
    scale = (HEIGHT - 2 * MARGIN) / (high - low) if high > low else 0.0

    def place(index: int, value: float) -> tuple[float, float]:
        return round(MARGIN + index * step, 1), round(HEIGHT - MARGIN - (value - low) * scale, 1)

    points = [place(index, value) for index, value in enumerate(values)]
    broken = [value < bound if at_least else value > bound for value in values]
    level = place(0, bound)[1]
    dots = "".join(
        f'<circle cx="{x}" cy="{y}" r="2.5" class="{"broken" if is_broken else "kept"}"/>'
        for (x, y), is_broken, last in zip(points, broken, [*[False] * (len(points) - 1), True], strict=True)
        if is_broken or last
    )
    runs = f"{len(values)} runs, from {values[0]:,.6g} to" if len(values) > 1 else "1 run:"
    said = f"{runs} {values[-1]:,.6g}; {sum(broken)} beyond the limit"
    return Svg(
        f'<svg class="spark" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" '
        f'aria-label="{said}"><title>{said}</title>'
        f'<line x1="0" x2="{WIDTH}" y1="{level}" y2="{level}" class="limit"/>'
        f'<polyline points="{" ".join(f"{x},{y}" for x, y in points)}"/>{dots}</svg>'
    )
