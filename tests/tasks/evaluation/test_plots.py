"""Equal numbers give equal bytes, and every input that a run can produce gives a picture."""

import io
from itertools import pairwise

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from tasks.evaluation import plots
from tasks.evaluation.plots import DARK, LIGHT, Curves

UPDATES = np.arange(100.0, 2100, 100)


def course(updates: int = 20, validations: int = 4) -> Curves:
    nll = 1 + 8 * np.exp(-UPDATES[:updates] / 400)
    return Curves(
        UPDATES[:updates], nll + 1, nll, UPDATES[:updates] / 1e6, UPDATES[:validations], np.full(validations, 5.0)
    )


def size_of(png: bytes) -> tuple[int, int]:
    image = Image.open(io.BytesIO(png))
    image.verify()
    return image.size


def test_same_numbers_same_bytes_and_nothing_but_the_picture() -> None:
    first = plots.curves(course(), LIGHT)
    assert first == plots.curves(course(), LIGHT)
    assert first != plots.curves(course(), DARK)
    assert first != plots.curves(course(19), LIGHT)
    assert not {"Software", "Creation Time", "date:create"} & set(Image.open(io.BytesIO(first)).info)


@pytest.mark.parametrize(("updates", "validations"), [(0, 0), (1, 0), (1, 1), (0, 1), (20, 0)])
def test_short_trainings_can_be_drawn(updates: int, validations: int) -> None:
    assert size_of(plots.curves(course(updates, validations), LIGHT)) == size_of(plots.curves(course(), LIGHT))


def test_a_filter_is_drawn_only_where_it_removed_pairs() -> None:
    assert size_of(plots.filters({"empty": 0}, 0, DARK)) == size_of(plots.filters({}, 10, DARK))
    assert plots.filters({"empty": 3, "not_in": 0}, 10, DARK) == plots.filters({"empty": 3}, 10, DARK)
    assert size_of(plots.filters({"a": 3, "b": 2}, 10, DARK))[1] > size_of(plots.filters({"a": 3}, 10, DARK))[1]


@pytest.mark.parametrize("longest", [1, 2, 61, 251])
def test_lengths_of_any_range(longest: int) -> None:
    counts = np.bincount([longest - 1, longest // 2])
    size_of(plots.lengths(counts, counts[:1], LIGHT))


def test_pieces_are_never_read_as_formulas() -> None:
    source, hypothesis = ["▁$x_{", "\\frac$", "犬", "</s>"], ["$$", "</s>"]
    weights = np.full((3, 5, 2, 4), 0.25)
    size_of(plots.attention(weights, source, hypothesis, DARK))
    kinds = {"$a": (weights, hypothesis, source), "b": (np.full((3, 5, 4, 4), 0.25), source, source)}
    size_of(plots.attention_heads(kinds, "▁$x_{", LIGHT))
    wide = plots.attention(np.full((1, 1, 2, 24), 1 / 24), ["▁a"] * 24, hypothesis, LIGHT)
    assert size_of(wide)[0] > size_of(wide)[1]


@pytest.mark.parametrize("tried", [[5e-5, 1.5e-4, 7e-4], [1e-6, 1e-4, 1e-1], [2e-3, 3e-3, 1.1e-2]])
def test_a_sweep_names_its_trials_and_its_labels_do_not_overlap(
    tried: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Figure] = []
    monkeypatch.setattr(plots, "png", lambda figure: drawn.append(figure) or b"")
    plots.sweep("dev.bleu", {0: 1.0, 3: 2.0, 4: 1.5}, True, {"training.peak": tried}, LIGHT)
    FigureCanvasAgg(drawn[0]).draw()
    above, below = drawn[0].axes
    best, trials = above.lines
    assert [*trials.get_xdata()] == [0, 3, 4], "the numbers that the table has"
    assert [*best.get_ydata()] == [1.0, 2.0, 2.0]
    low, high = below.get_xlim()
    shown = [each for each in below.get_xticklabels(which="both") if low <= each.get_position()[0] <= high]
    boxes = [each.get_window_extent() for each in shown if each.get_text()]
    assert len(boxes) >= 2
    assert all(one.x1 < next_one.x0 for one, next_one in pairwise(boxes))
