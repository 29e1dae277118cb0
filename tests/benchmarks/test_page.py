"""Tests of the page of measurements: it is what its rows say."""

import pytest

from benchmarks.page import PAGE, keeps, page, read_rows


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == page(read_rows()), "run: python benchmarks/page.py"


def test_a_row_has_its_words_and_a_figure() -> None:
    for row in read_rows():
        assert isinstance(row.pop("figure"), int | float)
        assert all(isinstance(value, str) for value in row.values())
        assert row["what"]
        assert row["unit"]
        assert row["machine"]


@pytest.mark.parametrize(("figure", "limit", "kept"), [(2.5, "≤ 2.5", True), (14, "≥ 15 (aim)", False)])
def test_a_limit_is_a_bound_on_one_side(figure: float, limit: str, kept: bool) -> None:
    assert keeps(figure, limit) is kept
