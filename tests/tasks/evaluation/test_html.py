"""Any text can be shown on the page."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.evaluation.html import visible

SPACES_AND_JOINERS = "\u00a0\u2009\u202f\u3000\u00ad\u200c\u200d"


@given(st.text())
def test_visible_text_can_be_printed(text: str) -> None:
    assert all(c.isprintable() or c in SPACES_AND_JOINERS or c.isspace() for c in visible(text))
    assert not {*visible(text)} & {*"\n\r\t\v\f\x1c\x85\u2028\u2029\u202e"}
    assert not text.isprintable() or len(text) > 400 or visible(text) == text


@pytest.mark.parametrize("harmless", SPACES_AND_JOINERS)
def test_only_dangerous_characters_look_like_damage(harmless: str) -> None:
    assert visible(f"„Tom.“{harmless}–") == f"„Tom.“{harmless}–"
    assert visible("a\u202eb\x1bc\ud800\u2066") == "a\ufffdb\ufffdc\ufffd\ufffd"
