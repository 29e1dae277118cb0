"""Makes text from outside fit for a terminal, where a control sequence could clear it, rename it or type into it."""

import re

_COMMANDS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""What a terminal obeys: control characters but newline and tab, and those that reorder a line."""


def shown(text: str) -> str:
    r"""One line of raw text with every unprintable character as an escape: ``\x1b``, ``\u202e``, ``\xa0``."""
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else _escape(sign) for sign in text)


def shown_lines(text: str) -> str:
    """Text of any number of lines with what a terminal obeys as escapes; special spaces and joiners stay."""
    return text if text.isprintable() else _COMMANDS.sub(lambda match: _escape(match[0]), text)


def _escape(sign: str) -> str:
    return ascii(sign)[1:-1]
