"""The page of measurements, its picture and its exponents are those of its rows."""

import io

import matplotlib.image
import numpy as np
import pytest

from benchmarks.growth import exponent, picture, tables
from benchmarks.page import PAGE, PICTURE, page, read_rows


@pytest.mark.parametrize("power", [0, 1, 2])
def test_the_exponent_is_that_of_the_last_decade(power: int) -> None:
    assert exponent({1: 1e9, 20: 5.0 * 20**power, 30: 1e9, 200: 5.0 * 200**power}) == pytest.approx(power)


def test_growth_beyond_linear_is_named() -> None:
    figures = {("clean, 10 pairs", "CPU s"): 1.0, ("clean, 100 pairs", "CPU s"): 20.0}
    figures |= {("clean, 10 pairs", "MiB"): 50.0, ("clean, 100 pairs", "MiB"): 1000.5}
    fields = {"section": "Scaling", "machine": "", "commit": "", "date": "", "note": "", "command": ""}
    rows = [{**fields, "what": what, "unit": unit, "figure": figure} for (what, unit), figure in figures.items()]
    assert "| clean | 1, 50 | 20, 1,000.5 | **1.30**, **1.30** |" in tables(rows)


def test_the_page_and_its_picture_are_up_to_date() -> None:
    assert PAGE.read_text() == page(read_rows()), "run: python benchmarks/page.py"
    fresh, kept = (matplotlib.image.imread(file) for file in (io.BytesIO(picture(read_rows())), PICTURE))
    assert fresh.shape == kept.shape
    differ = np.abs(fresh - kept).max(axis=2) > 0.3  # more than another build of the fonts may change
    assert differ.sum() < 20, "run: python benchmarks/page.py"
