"""Draw the learning curves of several trainings in one picture, as PNG bytes."""

from collections.abc import Mapping
from itertools import product

from tasks.evaluation.plots import Curves, Theme, dress, label_log_axis, legend, new_figure, png, thousands

STYLES = ("-", "--", ":")


def learning_curves(trainings: Mapping[str, Curves], theme: Theme) -> bytes:
    """Dev perplexity and training loss against the update, one line for each training by name."""
    figure = new_figure(5.8, 5.6 + 0.18 * len(trainings), theme)
    perplexity, loss = figure.subplots(2, 1, sharex=True)
    dress(perplexity, theme, "Dev perplexity", "per target piece, log scale")
    dress(loss, theme, "Training loss", "nats per target piece")
    perplexity.set_yscale("log")
    lines = list(product(STYLES, (theme.source, theme.target, theme.strong, theme.muted)))
    for place, (name, curves) in enumerate(trainings.items()):
        style, colour = lines[place % len(lines)]
        drawn = {"color": colour, "ls": style, "lw": 1.6}
        label = name.replace("_", " ")  # matplotlib leaves out labels that begin with an underscore
        perplexity.plot(curves.dev_updates, curves.dev_perplexity, marker="o", ms=3, label=label, **drawn)
        loss.plot(curves.updates, curves.loss, **drawn)
    label_log_axis(perplexity.yaxis)
    legend(perplexity, theme)
    loss.set_xlabel("update", color=theme.muted)
    loss.xaxis.set_major_formatter(thousands())
    figure.align_ylabels()
    return png(figure)
