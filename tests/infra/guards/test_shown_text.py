"""Nothing in text from outside commands a terminal; what people read stays."""

from hypothesis import example, given
from hypothesis import strategies as st

from infra.guards.shown_text import shown, shown_lines

CLEAR = "\x1b[2J\x1b]0;owned\x07\x9b31m\r\u202e"


@given(st.text())
@example(CLEAR)
def test_no_character_that_a_terminal_obeys_survives(text: str) -> None:
    assert shown(text).isprintable()
    assert all(sign in "\n\t" or not (ord(sign) < 32 or 127 <= ord(sign) < 160) for sign in shown_lines(text))
    assert not set("\u202a\u202e\u2066\u2028") & set(shown_lines(text))
    shown_lines(text).encode()  # no lone surrogate


def test_readable_text_is_unchanged() -> None:
    lines = "Größe « mot\u00a0»\n\tمی\u200cخواهم 日本 \\x1b"
    assert shown_lines(lines) == lines
    assert shown("Größe 日本 \\x1b") == "Größe 日本 \\x1b"
    assert shown(CLEAR) == r"\x1b[2J\x1b]0;owned\x07\x9b31m\r\u202e"
