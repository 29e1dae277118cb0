"""Render HTML pages that need no other file: Jinja2 templates over ``base.html``, and pictures as data URIs."""

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tasks.evaluation.collapse import LayerCurves


def render(template: str, **values: object) -> str:
    """The page. A variable that the template uses and ``values`` lacks is an error."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    loader = FileSystemLoader(Path(__file__).parent)
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template(template).render(values)


@dataclass(frozen=True)
class Picture:
    """One drawing for light and dark pages as data URIs; ``alt`` describes it."""

    name: str
    alt: str
    light: str
    dark: str


def draw(name: str, alt: str, drawing: Callable[[Any], bytes]) -> tuple[Picture, bytes]:
    """The picture, and the PNG of its light theme."""
    from tasks.evaluation import plots  # matplotlib loads for half a second

    light = drawing(plots.LIGHT)
    return Picture(name, alt, data_uri(light), data_uri(drawing(plots.DARK))), light


def layers_picture(trainings: Mapping[str, LayerCurves]) -> Picture | None:
    """The signs of collapse of trainings side by side; None if none of them recorded any."""
    if not any(trainings.values()):
        return None
    from tasks.evaluation import network_plots

    def transparent(theme: Any) -> bytes:  # so that the shade at an edge of ``.scroll`` is seen through it
        return network_plots.layers(trainings, replace(theme, page="none"))

    return draw("layers", "Signs of collapse by layer", transparent)[0]


def data_uri(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode()
