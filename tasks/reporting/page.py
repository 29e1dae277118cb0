"""Renders the page of a run from ``page.html``, and formats the numbers and the text on it.

Text of the corpus is foreign: the template escapes it, and ``visible`` replaces what cannot be printed.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tasks.reporting.sparkline import sparkline

LONGEST_TEXT = 400
"""Characters of a sentence that are shown."""


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


def duration(seconds: float) -> str:
    """``3 h 07 min``, ``4 min 09 s`` or ``8 s``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


def visible(text: str) -> str:
    """Text for the page: unprintable characters become U+FFFD, overlong text is cut."""
    shown = "".join(c if c.isprintable() else "\ufffd" for c in text)
    return shown if len(shown) <= LONGEST_TEXT else shown[:LONGEST_TEXT] + " …"
