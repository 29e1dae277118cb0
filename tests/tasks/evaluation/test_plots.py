"""Equal numbers give equal bytes, and every input that a run can produce gives a picture."""

import io
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image
from sacrebleu.metrics import BLEU

from tasks.evaluation import network_plots, plots
from tasks.evaluation.plots import DARK, LIGHT
from tasks.evaluation.training_log import Curves

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


def test_short_trainings_can_be_drawn() -> None:
    size = size_of(plots.curves(course(), LIGHT))
    for updates, validations in ((0, 0), (1, 0), (1, 1), (0, 1), (20, 0)):
        assert size_of(plots.curves(course(updates, validations), LIGHT)) == size


@pytest.mark.parametrize("nll", [100.0, 700.0])
def test_the_perplexity_of_a_diverged_training_can_be_read(drawn: list[Figure], nll: float) -> None:
    made = course()
    plots.curves(replace(made, nll=made.nll + nll, dev_perplexity=np.exp(np.full(len(made.dev_updates), nll))), LIGHT)
    panel = drawn[0].axes[1]
    assert len(panel.get_yticks()) <= 7
    assert max(panel.lines[0].get_ydata()) == pytest.approx(max(panel.lines[1].get_ydata()))


def test_pieces_are_never_read_as_formulas() -> None:
    source, hypothesis = ["▁$x_{", "\\frac$", "犬", "</s>"], ["$$", "</s>"]
    weights = np.full((3, 5, 2, 4), 0.25)
    size_of(network_plots.attention(weights, source, hypothesis, DARK))
    kinds = {"$a": (weights, hypothesis, source), "b": (np.full((3, 5, 4, 4), 0.25), source, source)}
    size_of(network_plots.attention_heads(kinds, "▁$x_{", LIGHT))
    wide = network_plots.attention(np.full((1, 1, 2, 24), 1 / 24), ["▁a"] * 24, hypothesis, LIGHT)
    assert size_of(wide)[0] > size_of(wide)[1]


def test_any_signs_that_a_training_has_can_be_drawn() -> None:
    curves = {"attention_entropy": {1: [(10, 1.5), (20, 1.0)]}, "residual_ratio_encoder_attention": {1: [(20, 2.0)]}}
    size_of(network_plots.by_layer(curves, LIGHT))


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that were drawn."""
    figures: list[Figure] = []

    def keep(figure: Figure) -> bytes:
        FigureCanvasAgg(figure).draw()
        figures.append(figure)
        return b""

    monkeypatch.setattr(plots, "png", keep)
    monkeypatch.setattr(network_plots, "png", keep)
    return figures


def test_each_sentence_is_in_one_bar(drawn: list[Figure]) -> None:
    exact = BLEU(effective_order=True).sentence_score("The old woman sees a dog.", ["The old woman sees a dog."]).score
    assert exact > 100, "sacreBLEU's own rounding"
    bleu = np.array([exact] * 350 + [0.0, 5.0, 99.9, 37.5])
    plots.sentence_bleu(bleu, "test", LIGHT)
    bars = [bar.get_height() for bar in drawn[0].axes[0].patches]
    assert sum(bars) == len(bleu)
    assert bars[-1] == 351


def test_ticks_are_labelled_where_they_stand(drawn: list[Figure]) -> None:
    plots.lengths({"test": (np.bincount([2, 5]), np.bincount([3]))}, LIGHT)
    plots.curves(course(20), LIGHT)
    network_plots.layers({"": {"encoder_cosine": {1: [(30, 0.5)]}}}, LIGHT)
    for axis in (drawn[0].axes[0].yaxis, drawn[1].axes[2].xaxis, drawn[2].axes[0].xaxis):
        labels = [float(each.get_text().replace(",", "")) for each in axis.get_majorticklabels()]
        assert labels == pytest.approx(axis.get_majorticklocs())


@pytest.mark.parametrize("longest", [5, 250])
def test_each_text_has_a_panel_on_one_scale_whose_bars_count_every_sentence(drawn: list[Figure], longest: int) -> None:
    training = np.bincount(np.arange(longest + 1)), np.bincount([3, 3, longest])
    plots.lengths({"training": training, "test": (np.bincount([2, 2]), np.bincount([0]))}, LIGHT)
    panels = drawn[0].axes
    assert ["training" in each.get_title("left") for each in panels] == [True, False]
    bars = [[sum(bar.get_data().values) for bar in each.patches if bar.get_fill()] for each in panels]
    assert bars == [[longest + 1, 3], [2, 1]]
    assert panels[0].get_xlim() == panels[1].get_xlim()
    assert panels[0].get_xlim()[1] > longest


def test_choices_of_a_sweep_stand_in_the_order_of_their_list(drawn: list[Figure]) -> None:
    choices = ["0.1", "0.2", "0.3"]
    settings = {"model.p_drop": plots.SearchedSetting(["0.3", "0.1"], choices=choices)}
    plots.sweep("dev.bleu", {0: 20.0, 1: 21.0}, True, settings, LIGHT)
    axes = drawn[0].axes[1]
    assert [each.get_text() for each in axes.get_xticklabels()] == choices
    assert list(axes.lines[0].get_xdata(orig=False)) == [2, 0]
