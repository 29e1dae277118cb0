"""Renders Markdown, and HTML pages that need no other file: Jinja2 templates, and pictures as data URIs.

Corpus text, names and tags are untrusted: HTML escapes them, Markdown escapes them where a template says so, and
``visible`` replaces unprintable characters.
"""

import base64
import html
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unicodedata import category

from infra.tracking.run_description import table
from tasks.durations import duration
from tasks.evaluation.training_log import LayerCurves

if TYPE_CHECKING:
    from jinja2 import Environment

BASE = Path(__file__).parent
"""The folder of ``base.html`` and ``base.css``."""
LONGEST_TEXT = 400
"""Characters of a sentence that are shown."""
JOINERS = "\u00ad\u200c\u200d"  # soft hyphen, zero-width non-joiner and joiner


@cache
def environment(folder: Path) -> "Environment":
    """Renders the templates of a folder. A variable that a template uses but does not receive is an error."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    found = Environment(
        loader=FileSystemLoader([folder, BASE]),
        autoescape=lambda name: not f"{name}".endswith(".md"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters.update(readable=readable, duration=duration, visible=visible, markdown=markdown, table=table)
    return found


def readable(value: object) -> str:
    """A fact as text: digits in groups, dicts on one line."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {readable(inner)}" for name, inner in value.items())
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int) or not math.isfinite(value):
        return f"{value:,}"
    return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"


def markdown(text: object) -> str:
    """Escape text for one line of Markdown, so that nothing in it is markup."""
    flat = " ".join(f"{text}".split())
    return html.escape(re.sub(r"([\\`*_\[\]|#~])", r"\\\1", flat), quote=False)


def score_text(facts: Mapping[str, Any], name: str) -> str:
    """A score with its interval: ``26.00 (25.20–26.80)``; "" for one that was not computed."""
    if name not in facts:
        return ""
    ends = [f"{float(facts[fact]):.2f}" for fact in (f"{name}_low", f"{name}_high") if fact in facts]
    interval = f" ({'–'.join(ends)})" if ends else ""
    return f"{float(facts[name]):.2f}{interval}"


def visible(text: str) -> str:
    """Text for the page: spaces and joiners stay, other unprintable characters become U+FFFD, overlong text is cut."""
    shown = "".join(c if c.isprintable() or category(c) == "Zs" or c in JOINERS else "\ufffd" for c in text)
    return shown if len(shown) <= LONGEST_TEXT else shown[:LONGEST_TEXT] + " …"


@dataclass(frozen=True)
class Picture:
    """One drawing for light and dark pages as data URIs; ``alt`` describes it."""

    alt: str
    light: str
    dark: str


def draw(alt: str, drawing: Callable[[Any], bytes]) -> tuple[Picture, bytes]:
    """The picture, and the PNG of its light theme."""
    from tasks.evaluation import plots  # matplotlib loads for half a second

    light = drawing(plots.LIGHT)
    return Picture(alt, _data_uri(light), _data_uri(drawing(plots.DARK))), light


def layers_picture(trainings: Mapping[str, LayerCurves]) -> Picture | None:
    """The signs of collapse of trainings side by side; None if none of them recorded any."""
    if not any(trainings.values()):
        return None
    from tasks.evaluation import network_plots

    def transparent(theme: Any) -> bytes:  # so that the shade at an edge of ``.scroll`` is seen through it
        return network_plots.layers(trainings, replace(theme, page="none"))

    return draw("Signs of collapse by layer", transparent)[0]


def _data_uri(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode()
