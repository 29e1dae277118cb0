"""Draw two histograms of a run as PNG bytes: BLEU of single sentences, and how often each token occurs."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from tasks.evaluation.plots import Numbers, Theme, dress, label_log_axis, legend, new_figure, png, thousands


def sentence_bleu(bleu: Numbers, name: str, theme: Theme) -> bytes:
    """How many sentences of a set have which BLEU, in steps of 5."""
    figure = new_figure(5.4, 2.9, theme)
    axes = figure.subplots()
    dress(axes, theme, f"BLEU of single sentences, {name}", "sentences")
    # sacreBLEU gives an exact match 100.00000000000004, which lies beyond the last bin.
    axes.hist(
        np.clip(bleu, 0, 100), bins=range(0, 101, 5), color=theme.source, alpha=0.75, edgecolor=theme.page, lw=0.8
    )
    for value, words in ((float(np.median(bleu)), "median"), (float(bleu.mean()), "mean")):
        style = "-" if words == "median" else "--"
        axes.axvline(value, color=theme.target, lw=1.4, ls=style, label=f"{words} {value:.1f}")
    axes.set_xlim(0, 100)
    axes.set_xlabel("BLEU of a sentence", color=theme.muted)
    axes.yaxis.set_major_formatter(thousands())
    legend(axes, theme)
    return png(figure)


def token_counts(counts: Mapping[str, NDArray[np.int64]], theme: Theme) -> bytes:
    """Tokens of each side's vocabulary from the most frequent one on, both axes logarithmic."""
    figure = new_figure(5.4, 3.1, theme)
    axes = figure.subplots()
    dress(axes, theme, "Tokens of the vocabulary in the training text", "occurrences")
    axes.set_xscale("log")
    axes.set_yscale("log")
    colours = {"source": theme.source, "target": theme.target}
    for side, each in counts.items():
        seen = np.sort(each[each > 0])[::-1]
        rare = int((each[each > 0] < 10).sum())
        label = f"{side}: {len(seen):,} of {len(each):,} occur, {rare:,} under 10 times"
        axes.plot(np.arange(1, len(seen) + 1), seen, color=colours[side], lw=1.8, label=label)
    axes.set_xlabel("rank of the token", color=theme.muted)
    for axis in (axes.xaxis, axes.yaxis):
        label_log_axis(axis)
    legend(axes, theme)
    return png(figure)
