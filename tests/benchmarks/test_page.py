"""Tests of the page of measurements: it is what its rows say."""

from benchmarks.page import PAGE, page, read_rows


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == page(read_rows()), "run: python benchmarks/page.py"
