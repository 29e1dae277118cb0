"""Tests of the page of measurements: it is what its rows say."""

from benchmarks.page import PAGE, page, read_rows


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == page(read_rows()), "run: python benchmarks/page.py"


def test_a_row_has_its_words_and_a_figure() -> None:
    for row in read_rows():
        assert isinstance(row.pop("figure"), int | float)
        assert all(isinstance(value, str) for value in row.values())
        assert row["what"]
        assert row["unit"]
        assert row["machine"]
