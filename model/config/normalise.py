r"""Defines how text is normalised: training text in the stage ``clean``, and every source that a version reads.

The patterns list code points, because classes such as ``\s`` differ between polars and tokenizers.
"""

from dataclasses import dataclass

_SPACE = r"\x{20}"
_OTHER_WHITE = r"\x{09}-\x{0D}\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000}"
_CONTROL = r"\x{00}-\x{08}\x{0E}-\x{1F}\x{7F}-\x{84}\x{86}-\x{9F}"
_INVISIBLE = r"\x{AD}\x{200B}\x{200E}\x{200F}\x{202A}-\x{202E}\x{2060}-\x{2069}\x{FEFF}"
REMOVED = f"[{_CONTROL}{_INVISIBLE}]"
"""What ``control`` removes: soft hyphens, zero-width and bidirectional marks, control characters except white space."""
UNEVEN = f"[{_SPACE}{_OTHER_WHITE}]{{2,}}|[{_OTHER_WHITE}]"
"""The white space that ``white_space`` replaces by one space: all white space of Unicode except a single space."""

DOUBLE_QUOTES = "“”„‟«»"
SINGLE_QUOTES = "‘’‚‛‹›"
"""Includes the typographic apostrophe."""
PLAIN_QUOTES = {f"[{DOUBLE_QUOTES}]": '"', f"[{SINGLE_QUOTES}]": "'"}
"""Maps a pattern of each kind of typographic quotation marks to the plain character that replaces them."""


@dataclass(frozen=True)
class Normalise:
    """Settings of the normalisation of each line, before the cleaning rules check it.

    ``nfc``: compose characters to Unicode's NFC. ``control``: remove control characters, zero-width and bidirectional
    marks, but keep the joiners that scripts need. ``white_space``: replace any sequence of white space by one space,
    and strip the ends. ``quotes``: replace typographic quotation marks by ``"`` and ``'``. A version normalises every
    source in the same way, in evaluation and in use.
    """

    nfc: bool = True
    control: bool = True
    white_space: bool = True
    quotes: bool = False

    @property
    def about(self) -> str:
        """The changes as text, for the fact ``source_input`` of scores; "" if there are none."""
        parts = {
            "control characters removed": self.control,
            "typographic quotes made plain": self.quotes,
            "characters composed (NFC)": self.nfc,
            "white space made single spaces": self.white_space,
        }
        return ", ".join(part for part, holds in parts.items() if holds)


STANDARD = Normalise()
"""The default normalisation of a run."""
