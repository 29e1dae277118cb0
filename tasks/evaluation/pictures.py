"""Pictures of a page: PNG bytes for light and dark pages as data URIs."""

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tasks.evaluation.collapse import LayerCurves


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
    from tasks.evaluation import layer_plots

    def transparent(theme: Any) -> bytes:  # so that the shade at an edge of ``.scroll`` is seen through it
        return layer_plots.layers(trainings, replace(theme, page="none"))

    return draw("layers", "Signs of collapse by layer", transparent)[0]


def data_uri(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode()
