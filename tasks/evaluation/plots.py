"""Draw the report's pictures as PNG bytes, in a light or dark theme. Equal numbers give equal bytes.

Figures are about five inches wide so that their text stays readable on a phone. Reads no files.
"""

import io
import math
import textwrap
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import XAxis, YAxis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator
from numpy.typing import NDArray

from tasks.evaluation.training_log import Curves

Numbers = NDArray[np.float64]

DOTS_PER_INCH = 160
LEGEND_CHARACTERS = 64
"""Characters of a legend's names and lines that fit beside each other over the axes."""
AXIS_CHARACTERS = 48
"""Characters of labels that fit beside each other under the axes."""
LOG_OF_MOST = 30
MOST_PERPLEXITY = math.exp(LOG_OF_MOST)
"""Perplexities of a diverged training are drawn as this, so that the others can be read."""
LEGEND_ROW = 13.0
"""Height of a legend's row in points."""


@dataclass(frozen=True)
class Theme:
    """Colours of a page, as in the style sheets of the templates."""

    page: str
    ink: str
    muted: str
    grid: str
    source: str
    target: str
    strong: str


LIGHT = Theme("#fdfcfa", "#1f2430", "#667080", "#e7e4de", "#2f6db5", "#d9772b", "#123a6b")
DARK = Theme("#14171d", "#e5e8ee", "#98a1b0", "#2a2f3a", "#6ca6e6", "#f0a05a", "#d3e6fb")


def curves(history: Curves, theme: Theme) -> bytes:
    """Loss, perplexity (training and validation) and learning rate by update."""
    figure = new_figure(5.4, 6.6, theme)
    loss, perplexity, rate = figure.subplots(3, 1, sharex=True, height_ratios=[3, 3, 1.6])
    dress(loss, theme, "Training loss", "nats per target piece")
    loss.plot(history.updates, history.loss, color=theme.source, lw=1.6, label="with label smoothing")
    loss.plot(history.updates, history.nll, color=theme.muted, lw=1.0, label="without")
    legend(loss, theme)
    dress(perplexity, theme, "Perplexity", "per target piece, log scale")
    perplexity.set_yscale("log")
    training = np.exp(np.minimum(history.nll, LOG_OF_MOST))
    perplexity.plot(history.updates, training, color=theme.source, lw=1.6, label="training")
    if len(history.dev_updates):
        perplexity.plot(
            history.dev_updates,
            np.minimum(history.dev_perplexity, MOST_PERPLEXITY),
            color=theme.target,
            lw=1.8,
            marker="o",
            ms=3.5,
            label="validation",
            clip_on=False,  # the last one lies on the edge
        )
        _mark_best(perplexity, history, theme)
    label_log_axis(perplexity.yaxis)
    legend(perplexity, theme)
    dress(rate, theme, "Learning rate", "× 10⁻³")
    rate.plot(history.updates, history.learning_rate * 1e3, color=theme.source, lw=1.6)
    rate.set_ylim(bottom=0)
    rate.set_xlabel("update", color=theme.muted)
    rate.set_xlim(0, max(history.updates.max(initial=1), history.dev_updates.max(initial=1)))
    rate.xaxis.set_major_formatter(thousands())
    figure.align_ylabels()
    return png(figure)


def filters(removed: Mapping[str, int], read: int, theme: Theme) -> bytes:
    """Pairs removed by each filter, most first, with the share of the pairs read."""
    rows = sorted(((count, name) for name, count in removed.items() if count), key=lambda row: (-row[0], row[1]))
    figure = new_figure(5.4, 0.9 + 0.3 * max(len(rows), 1), theme)
    axes = figure.subplots()
    dress(axes, theme, "Pairs removed by each filter", "")
    axes.grid(visible=False)
    axes.spines["bottom"].set_visible(False)
    axes.set_xticks([])
    if not rows:
        axes.set_yticks([])
        axes.text(0.0, 0.5, "none", color=theme.muted, transform=axes.transAxes)
        return png(figure)
    places = list(range(len(rows)))
    axes.barh(places, [count for count, _ in rows], height=0.62, color=theme.source)
    axes.set_yticks(places, [name.replace("_", " ") for _, name in rows], parse_math=False, color=theme.ink)
    axes.invert_yaxis()
    axes.set_xlim(0, rows[0][0] * 1.32)
    for place, (count, _) in zip(places, rows, strict=True):
        share = 100 * count / max(read, 1)
        percent = f"{share:.1f} %" if share >= 0.1 else "under 0.1 %"
        axes.text(count, place, f"  {count:,}  ({percent})", va="center", fontsize=8.5, color=theme.muted)
    return png(figure)


def lengths(texts: Mapping[str, tuple[NDArray[np.int64], NDArray[np.int64]]], theme: Theme) -> bytes:
    """Histograms of sentence lengths, one below the other on one scale, by the name of the text.

    For source and target, element ``n`` counts the sentences with ``n`` pieces.
    """
    figure = new_figure(5.4, 1.0 + 1.9 * len(texts), theme)
    longest = max(len(counts) for sides in texts.values() for counts in sides)
    width = max(1, longest // 60)
    panels = figure.subplots(len(texts), 1, sharex=True, squeeze=False)[:, 0]
    for axes, (name, sides) in zip(panels, texts.items(), strict=True):
        dress(axes, theme, f"Length of the sentences, {name}", "sentences")
        for counts, color, side in zip(sides, (theme.source, theme.target), ("source", "target"), strict=True):
            binned = np.add.reduceat(counts, np.arange(0, len(counts), width)) if len(counts) else np.zeros(1)
            edges = np.arange(len(binned) + 1) * width - 0.5
            mean = float((counts * np.arange(len(counts))).sum() / max(counts.sum(), 1))
            label = f"{side}, mean {mean:.1f}, longest {max(len(counts) - 1, 0)}"
            axes.stairs(binned, edges, fill=True, color=color, alpha=0.22)
            axes.stairs(binned, edges, color=color, lw=1.5, label=label)
        axes.yaxis.set_major_formatter(thousands())
        legend(axes, theme)
    panels[-1].set_xlim(-0.5, -(-longest // width) * width - 0.5)
    panels[-1].set_xlabel("pieces in a sentence" + (f", in steps of {width}" if width > 1 else ""), color=theme.muted)
    return png(figure)


@dataclass(frozen=True)
class SearchedSetting:
    """The values of a setting in the completed trials of a sweep: numbers, or texts of a list of choices."""

    values: Sequence[float] | Sequence[str]
    log: bool = False
    """Whether its range was searched logarithmically."""
    choices: Sequence[str] = ()
    """The list of choices in its order; empty for numbers."""


def sweep(
    score: str, values: Mapping[int, float], maximize: bool, settings: Mapping[str, SearchedSetting], theme: Theme
) -> bytes:
    """The scores of a sweep's completed trials by their numbers, with the best so far, and by each searched setting."""
    figure = new_figure(5.4, 2.8 + 2.0 * len(settings), theme)
    panels = figure.subplots(1 + len(settings), 1, squeeze=False, height_ratios=[2.8, *[2.0] * len(settings)])[:, 0]
    trials = list(values)
    numbers = np.array(list(values.values()), dtype=np.float64)
    best = (np.maximum if maximize else np.minimum).accumulate(numbers) if len(numbers) else numbers
    dress(panels[0], theme, f"{score} of each completed trial", score)
    panels[0].step(trials, best, where="post", color=theme.target, lw=1.6, label="best so far")
    panels[0].plot(trials, numbers, "o", color=theme.source, ms=4.5, label="trial")
    panels[0].xaxis.set_major_locator(MaxNLocator(8, integer=True))
    legend(panels[0], theme)
    for axes, (name, setting) in zip(panels[1:], settings.items(), strict=True):
        dress(axes, theme, name, score)
        width = max(8, AXIS_CHARACTERS // max(len(setting.choices), 1))
        if setting.choices:  # else the order of the trials would be that of the axis
            axes.xaxis.update_units([textwrap.fill(each, width) for each in setting.choices])
        places = [textwrap.fill(each, width) if isinstance(each, str) else each for each in setting.values]
        axes.plot(places, numbers, "o", color=theme.source, ms=4.5)
        if setting.log:
            axes.set_xscale("log")
            label_log_axis(axes.xaxis)
    return png(figure)


def _mark_best(axes: Axes, history: Curves, theme: Theme) -> None:
    best = int(history.dev_perplexity.argmin())
    lowest = float(history.dev_perplexity[best])
    axes.annotate(
        f"best {lowest:.2f}" if lowest < MOST_PERPLEXITY else f"best {lowest:.0e}",
        (history.dev_updates[best], min(lowest, MOST_PERPLEXITY)),
        xytext=(0, 7),
        textcoords="offset points",
        ha="right" if history.dev_updates[best] > history.dev_updates.max() * 0.6 else "left",
        color=theme.target,
        fontsize=9,
        fontweight="bold",
    )


def new_figure(width: float, height: float, theme: Theme) -> Figure:
    figure = Figure(figsize=(width, height), dpi=DOTS_PER_INCH, layout="constrained", facecolor=theme.page)
    FigureCanvasAgg(figure)
    return figure


def dress(axes: Axes, theme: Theme, title: str, unit: str) -> None:
    axes.set_facecolor(theme.page)
    _title(axes, theme, title, 8)
    axes.set_ylabel(unit, color=theme.muted, fontsize=9)
    axes.grid(axis="y", color=theme.grid, lw=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, colors=theme.muted, labelsize=9)
    for name, spine in axes.spines.items():
        spine.set_visible(name == "bottom")
        spine.set_color(theme.grid)
    axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))


def legend(axes: Axes, theme: Theme) -> None:
    """Names of the lines between the title and the axes, where they cover no data."""
    names = axes.get_legend_handles_labels()[1]
    columns = max(1, min(len(names), LEGEND_CHARACTERS // (max(map(len, names), default=0) + 8)))
    axes.legend(
        fontsize=8.5,
        labelcolor=theme.ink,
        loc="lower left",
        bbox_to_anchor=(0, 1),
        borderaxespad=0,
        borderpad=0.2,
        labelspacing=0.2,
        ncols=columns,
        handlelength=1.4,
        frameon=False,
    )
    _title(axes, theme, axes.get_title(loc="left"), 8 + LEGEND_ROW * -(-len(names) // columns))


def _title(axes: Axes, theme: Theme, text: str, pad: float) -> None:
    axes.set_title(text, loc="left", fontsize=10.5, fontweight="bold", color=theme.ink, pad=pad, parse_math=False)


def label_log_axis(axis: XAxis | YAxis) -> None:
    """Label a logarithmic axis, after its data is drawn, at round numbers that do not overlap."""
    low, high = axis.get_view_interval()
    axis.set_major_locator(FixedLocator(_round_ticks(low, high)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(thousands())


def _round_ticks(low: float, high: float) -> list[float]:
    """Round ticks of a log scale: from two to seven."""
    tens = [10.0**n for n in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]
    for steps in ((1, 2, 5), (1, 3), (1,)):
        ticks = [ten * step for ten in tens for step in steps if low <= ten * step <= high]
        if len(ticks) <= 7:
            break
    ticks = ticks[:: math.ceil(len(ticks) / 7) or 1]
    return ticks if len(ticks) >= 2 else [each for each in MaxNLocator(4).tick_values(low, high) if low <= each <= high]


def thousands() -> FuncFormatter:
    """Digits in groups; a tick between whole numbers keeps its decimals."""
    return FuncFormatter(lambda value, _: f"{value:,.10g}")


def png(figure: Figure) -> bytes:
    """Encode without program name and date, so that equal pictures have equal bytes."""
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # shown as a box
        figure.savefig(file, format="png", metadata={"Software": None})
    return file.getvalue()


def sentence_bleu(bleu: Numbers, name: str, theme: Theme) -> bytes:
    """Histogram of the BLEU of single sentences of a set, in steps of 5."""
    figure = new_figure(5.4, 2.9, theme)
    axes = figure.subplots()
    dress(axes, theme, f"BLEU of single sentences, {name}", "sentences")
    # sacreBLEU gives an exact match 100.00000000000004, which lies beyond the last bin.
    axes.hist(
        np.clip(bleu, 0, 100), bins=range(0, 101, 5), color=theme.source, alpha=0.75, edgecolor=theme.page, lw=0.8
    )
    for value, words, style in ((float(np.median(bleu)), "median", "-"), (float(bleu.mean()), "mean", "--")):
        axes.axvline(value, color=theme.target, lw=1.4, ls=style, label=f"{words} {value:.1f}")
    axes.set_xlim(0, 100)
    axes.set_xlabel("BLEU of a sentence: cased, smoothed", color=theme.muted)
    axes.yaxis.set_major_formatter(thousands())
    legend(axes, theme)
    return png(figure)
