"""Any text can be shown on the page."""

from hypothesis import given
from hypothesis import strategies as st

from tasks.evaluation.html import visible


@given(st.text())
def test_visible_text_can_be_printed(text: str) -> None:
    assert visible(text).isprintable()
    assert not text.isprintable() or len(text) > 400 or visible(text) == text
