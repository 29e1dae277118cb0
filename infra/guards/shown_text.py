"""Makes text from outside safe for a terminal: control sequences could clear it, rename it or type into it."""

import re

_COMMANDS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that control a terminal: control characters except newline and tab, and those that reorder a line."""


def shown(text: str) -> str:
    r"""Return one line of text with every unprintable character as an escape: ``\x1b``, ``\u202e``, ``\xa0``."""
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else _escape(sign) for sign in text)


def shown_lines(text: str) -> str:
    """Return lines of text with terminal-controlling characters as escapes; special spaces and joiners stay."""
    return text if text.isprintable() else _COMMANDS.sub(lambda match: _escape(match[0]), text)


def _escape(sign: str) -> str:
    return ascii(sign)[1:-1]
