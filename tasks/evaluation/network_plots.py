"""Draw the inside of the network as PNG bytes: attention weights, and signs of collapse by layer."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.ticker import MaxNLocator

from model import metric_names
from tasks.evaluation.plots import Numbers, Theme, dress, legend, new_figure, png, thousands
from tasks.evaluation.training_log import SIGNS, Curve, LayerCurves

CELL = 0.27
"""Width and height, in inches, of one cell of an attention map."""
PANEL = 2.1
"""Height of a panel in inches."""
BY_LAYER = {
    "Residual beside its main stream: |f(x)| / |x|": {
        metric_names.RESIDUAL_RATIO_ENCODER_ATTENTION: "encoder self-attention",
        metric_names.RESIDUAL_RATIO_ENCODER_FEED_FORWARD: "encoder feed-forward",
        metric_names.RESIDUAL_RATIO_DECODER_ATTENTION: "decoder self-attention",
        metric_names.RESIDUAL_RATIO_DECODER_FEED_FORWARD: "decoder feed-forward",
        metric_names.RESIDUAL_RATIO_DECODER_CROSS: "cross-attention",
    },
    "Entropy of a query's attention, nats": {
        metric_names.ATTENTION_ENTROPY_ENCODER: "encoder self-attention",
        metric_names.ATTENTION_ENTROPY_DECODER: "decoder self-attention",
        metric_names.ATTENTION_ENTROPY: "cross-attention",
    },
}
"""Panels of ``by_layer``: their signs with the names of their lines."""


def layers(trainings: Mapping[str, LayerCurves], theme: Theme) -> bytes:
    """Each sign against the update, one line per layer, for trainings by name.

    One training fills a grid of two columns. Of several, each has a column, and the panels of a row share their scale.
    """
    signs = [sign for sign in SIGNS if any(sign in curves for curves in trainings.values())]
    panels = [(sign, name, curves) for sign in signs for name, curves in trainings.items()]
    columns = max(2, len(trainings))
    rows = -(-len(panels) // columns)
    figure = new_figure(2.9 * columns, PANEL * rows, theme)
    grid = figure.subplots(rows, columns, squeeze=False, sharey="row" if len(trainings) > 1 else "none")
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    for axes, (sign, name, curves) in zip(grid.flat, panels, strict=False):
        title = "\n".join(filter(None, (name, SIGNS[sign])))  # the name in every panel, since a phone shows few
        _draw_layers(axes, curves.get(sign, {}), title, theme)
    return png(figure)


def _draw_layers(axes: Axes, curves: Mapping[int, Curve], title: str, theme: Theme) -> None:
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


def by_layer(curves: LayerCurves, theme: Theme) -> bytes:
    """The signs of ``BY_LAYER`` at the last dev check against the layer; feed-forward has open circles."""
    figure = new_figure(5.4, 6.6, theme)
    for axes, (title, lines) in zip(figure.subplots(2, 1), BY_LAYER.items(), strict=True):
        dress(axes, theme, title, "at the last dev check")
        for sign, name in lines.items():
            last = {layer: curve[-1][1] for layer, curve in curves.get(sign, {}).items()}
            colour = theme.source if name.startswith("encoder") else theme.target
            colour = theme.ink if name.startswith("cross") else colour
            inner = theme.page if name.endswith("feed-forward") else colour
            axes.plot(list(last), list(last.values()), color=colour, lw=1.6, marker="o", ms=5, mfc=inner, label=name)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("layer", color=theme.muted)
        axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
        legend(axes, theme)
    return png(figure)


def attention(weights: Numbers, source: Sequence[str], hypothesis: Sequence[str], theme: Theme) -> bytes:
    """Cross-attention (layers, heads, target pieces, source pieces) of one sentence (§3.2.3).

    Draws the mean over heads of the upper half of the layers.
    """
    layers, heads, written, read = weights.shape
    lower = layers // 2
    figure = new_figure(max(4.6, 1.3 + CELL * read), 1.3 + CELL * written, theme)
    axes = figure.subplots()
    _map(axes, weights[lower:].mean(axis=(0, 1)), theme)
    _name_pieces(axes, hypothesis, source, theme)
    where = f"layer {layers}" if lower + 1 == layers else f"layers {lower + 1} to {layers}"
    axes.set_xlabel(
        f"across: source; down: translation\nmean over {heads} heads of {where}", color=theme.muted, fontsize=9
    )
    return png(figure)


def attention_heads(
    kinds: Mapping[str, tuple[Numbers, Sequence[str], Sequence[str]]], heading: str, theme: Theme
) -> bytes:
    """Every head of every layer for several kinds of attention: the mean with its pieces, and a grid of all heads.

    The grid has one row per layer. Each kind is given as weights (layers, heads, rows, columns) with the pieces of its
    rows and columns.
    """
    sizes = []
    for weights, _, _ in kinds.values():
        layers, heads, down, across = weights.shape
        small = max(0.6, min(1.6, CELL * down / layers))
        widths = 1.6 + CELL * across, 0.5 + heads * (0.1 + small * across / down)
        sizes.append((*widths, max(1.9 + CELL * down, 0.7 + layers * (small + 0.12))))
    left = max(size[0] for size in sizes)
    right = max(size[1] for size in sizes)
    figure = new_figure(left + right, 0.4 + sum(size[2] for size in sizes), theme)
    if heading:
        figure.suptitle(heading, fontsize=10.5, fontweight="bold", color=theme.ink, parse_math=False)
    blocks = figure.subfigures(
        len(kinds), 2, squeeze=False, height_ratios=[s[2] for s in sizes], width_ratios=[left, right]
    )
    for (name, (weights, rows, columns)), (mean, grid) in zip(kinds.items(), blocks, strict=True):
        layers, heads = weights.shape[:2]
        mean.set_facecolor(theme.page)
        grid.set_facecolor(theme.page)
        axes = mean.subplots()
        _map(axes, weights.mean(axis=(0, 1)), theme)
        _name_pieces(axes, rows, columns, theme)
        axes.set_xlabel(f"{name}\nmean over {layers} layers of {heads} heads", color=theme.muted, fontsize=9)
        for layer, places in enumerate(grid.subplots(layers, heads, squeeze=False)):
            for head, place in enumerate(places):
                _map(place, weights[layer, head], theme)
                place.set_xticks([])
                place.set_yticks([])
                if layer == 0:
                    place.set_title(f"head {head + 1}", fontsize=7.5, color=theme.muted, pad=3)
                if head == 0:
                    place.set_ylabel(f"layer {layer + 1}", fontsize=7.5, color=theme.muted, labelpad=3)
    return png(figure)


def _name_pieces(axes: Axes, rows: Sequence[str], columns: Sequence[str], theme: Theme) -> None:
    axes.set_xticks(range(len(columns)), columns, rotation=55, ha="left", rotation_mode="anchor", parse_math=False)
    axes.set_yticks(range(len(rows)), rows, parse_math=False)
    axes.tick_params(axis="both", length=0, colors=theme.ink, labelsize=8.5, top=True, bottom=False)
    axes.tick_params(axis="x", labeltop=True, labelbottom=False)


def _map(axes: Axes, weights: Numbers, theme: Theme) -> None:
    """Draw weights as an image: zero has the colour of the page, and the largest weight the strongest colour."""
    colours = LinearSegmentedColormap.from_list("attention", [theme.page, theme.source, theme.strong])
    axes.imshow(weights, cmap=colours, vmin=0, vmax=max(float(weights.max(initial=0)), 1e-6), aspect="equal")
    for spine in axes.spines.values():
        spine.set_color(theme.grid)
        spine.set_linewidth(0.8)
