"""Any text can be shown on the page, and its tables can be reached by keyboard."""

import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tasks.reporting import page
from tasks.reporting.page import visible


@given(st.text())
def test_visible_text_can_be_printed(text: str) -> None:
    assert visible(text).isprintable()
    assert not text.isprintable() or len(text) > 400 or visible(text) == text


def test_tables_that_scroll_can_be_reached_by_keyboard_and_have_names() -> None:
    text = (Path(page.__file__).parent / "page.html").read_text()
    regions = re.findall(r'<div class="scroll"[^>]*>', text)
    assert regions
    assert all(re.search(r'tabindex="0" role="region" aria-label="Table: \w', region) for region in regions)
    assert "<th></th>" not in text
    assert text.index("</header>") < text.index("<main>") < text.index("<section") < text.index("</main>")
