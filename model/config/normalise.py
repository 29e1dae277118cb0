r"""How text is normalised: training text by the stage ``clean``, and a source wherever a version reads it.

The patterns mean the same in polars and in tokenizers, whose classes such as ``\s`` differ.
"""

from dataclasses import dataclass

_SPACE = r"\x{20}"
_OTHER_WHITE = r"\x{09}-\x{0D}\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000}"
_CONTROL = r"\x{00}-\x{08}\x{0E}-\x{1F}\x{7F}-\x{84}\x{86}-\x{9F}"
_INVISIBLE = r"\x{AD}\x{200B}\x{200E}\x{200F}\x{202A}-\x{202E}\x{2060}-\x{2069}\x{FEFF}"
REMOVED = f"[{_CONTROL}{_INVISIBLE}]"
"""What ``control`` removes: control characters but white space, soft hyphen, zero-width and bidirectional marks."""
UNEVEN = f"[{_SPACE}{_OTHER_WHITE}]{{2,}}|[{_OTHER_WHITE}]"
"""The white space that ``white_space`` replaces by one space: all of Unicode but a single space."""

DOUBLE_QUOTES = "“”„‟«»"
SINGLE_QUOTES = "‘’‚‛‹›"
"""Includes the typographic apostrophe."""
PLAIN_QUOTES = {f"[{DOUBLE_QUOTES}]": '"', f"[{SINGLE_QUOTES}]": "'"}
"""Regular expressions of both kinds of typographic quotation marks, and the plain character of each."""


@dataclass(frozen=True)
class Normalise:
    """How each line is normalised before the rules see it.

    ``nfc``: Unicode's composed form. ``control``: remove control, zero-width and bidirectional marks, but not the
    joiners that scripts need. ``white_space``: one space for any run, none at the ends. ``quotes``: ``"`` and ``'`` for
    typographic quotation marks. A version does the same to every source that it reads, in evaluation and in use.
    """

    nfc: bool = True
    control: bool = True
    white_space: bool = True
    quotes: bool = False

    @property
    def about(self) -> str:
        """What is changed, as the fact ``source_input`` of scores says it; "" if nothing is."""
        parts = {
            "control characters removed": self.control,
            "typographic quotes made plain": self.quotes,
            "characters composed (NFC)": self.nfc,
            "white space made single spaces": self.white_space,
        }
        return ", ".join(part for part, holds in parts.items() if holds)


STANDARD = Normalise()
"""How runs normalise unless they say otherwise."""
