"""Draw the signs of collapse by layer as PNG bytes: of one training as a grid, of several side by side."""

from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap

from tasks.evaluation.collapse import SIGNS, Curve, LayerCurves
from tasks.evaluation.plots import Theme, dress, new_figure, png, thousands

PANEL = 2.1
"""Height of a panel in inches."""


def layers(trainings: Mapping[str, LayerCurves], theme: Theme) -> bytes:
    """Each sign against the update, one line per layer, for trainings by name.

    One training fills a grid of two columns. Of several, each has a column, and the panels of a row share their scale.
    """
    signs = [sign for sign in SIGNS if any(sign in curves for curves in trainings.values())]
    if len(trainings) == 1:
        (curves,) = trainings.values()
        rows = -(-len(signs) // 2)
        figure = new_figure(5.8, PANEL * rows, theme)
        grid = figure.subplots(rows, 2, squeeze=False)
        for axes in grid.flat[len(signs) :]:
            axes.set_visible(False)
        cells = [(axes, sign, SIGNS[sign], curves) for axes, sign in zip(grid.flat, signs, strict=False)]
    else:
        figure = new_figure(max(5.8, 2.9 * len(trainings)), PANEL * len(signs), theme)
        grid = figure.subplots(len(signs), len(trainings), squeeze=False, sharey="row")
        cells = [
            (grid[row, column], sign, f"{name}\n{SIGNS[sign]}", curves)  # each, since a phone shows few panels
            for row, sign in enumerate(signs)
            for column, (name, curves) in enumerate(trainings.items())
        ]
    for axes, sign, title, curves in cells:
        draw_layers(axes, curves.get(sign, {}), title, theme)
    return png(figure)


def draw_layers(axes: Axes, curves: Mapping[int, Curve], title: str, theme: Theme) -> None:
    """One line per layer, from light for the first to dark for the last; the ends are numbered."""
    dress(axes, theme, title, "")
    axes.set_title(title, loc="left", fontsize=7.5, fontweight="bold", color=theme.ink, pad=5, parse_math=False)
    axes.tick_params(labelsize=7.5)
    axes.set_xlabel("update", color=theme.muted, fontsize=7.5)
    axes.xaxis.set_major_formatter(thousands())
    if not curves:
        axes.text(0.5, 0.5, "not recorded", color=theme.muted, ha="center", fontsize=8, transform=axes.transAxes)
        return
    shades = LinearSegmentedColormap.from_list("layers", [theme.grid, theme.source, theme.strong])
    for layer, curve in curves.items():
        colour = shades(0.25 + 0.75 * layer / max(curves))
        updates, values = zip(*curve, strict=True)
        axes.plot(updates, values, color=colour, lw=1.5, marker="o", ms=2)
        if layer in (min(curves), max(curves)):
            place = (updates[-1], values[-1])
            axes.annotate(f" {layer}", place, color=colour, fontsize=7.5, va="center", annotation_clip=False)
    axes.margins(x=0.08)
