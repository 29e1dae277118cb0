"""Finds faults of translations or references that cost BLEU, and repairs a copy to measure the cost."""

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from tasks.evaluation.translation_metrics import plain_quotes

Lines = Sequence[str]
Repair = Callable[[Lines, Lines], tuple[Lines, Lines]]
SPLIT_OFF = re.compile(r" [.,;:!?](?= |$)|&(?:apos|quot|amp|#124);|@-@|##AT##|@@(?= |$)|▁")
"""Marks of tokens and pieces, absent in text: punctuation after a space, an escape, a split hyphen, a cut word."""
TOKENISED = 0.1
"""Lines count as tokenised if their share with such marks exceeds the other side's share by this."""


@dataclass(frozen=True)
class TextCause:
    """A cause with its repair of translations and references. ``is_fault``: no published score has this cause."""

    about: str
    is_fault: bool
    repair: Repair


def text_causes(written: Lines, expected: Lines, language: str, *, has_case: bool = True) -> list[TextCause]:
    """The causes found in these texts in ``language`` (``de``); ``has_case``: the score depends on case."""
    found = []
    if _marks(written) > _marks(expected) + TOKENISED:
        found.append(TextCause("translations look tokenised", True, partial(_detokenised, language)))
    capitals = [any(line != line.lower() for line in side) for side in (written, expected)]
    if has_case and capitals[0] != capitals[1]:
        side = "references" if capitals[0] else "translations"
        found.append(TextCause(f"{side} are lower-cased, the other side is not", True, partial(_both, str.lower)))
    for about, change in {"typographic quotes": plain_quotes, "unnormalised characters or spaces": _normal}.items():
        if any(change(line) != line for line in (*written, *expected)):
            found.append(TextCause(about, False, partial(_both, change)))
    return found


def _marks(lines: Lines) -> float:
    return sum(SPLIT_OFF.search(line) is not None for line in lines) / max(len(lines), 1)


def _detokenised(language: str, written: Lines, expected: Lines) -> tuple[Lines, Lines]:
    from sacremoses import MosesDetokenizer

    moses = MosesDetokenizer(lang=language)
    whole = (re.sub(r"@@(?: |$)", "", line) if "▁" not in line else line.replace(" ", "") for line in written)
    words = (re.sub(r" ?(?:@-@|##AT##-##AT##) ?", "-", line.replace("▁", " ")) for line in whole)
    return [moses.detokenize(line.split()) for line in words], expected


def _both(change: Callable[[str], str], written: Lines, expected: Lines) -> tuple[Lines, Lines]:
    return [change(line) for line in written], [change(line) for line in expected]


def _normal(line: str) -> str:
    """Normalise to composed characters, no invisible characters, single spaces."""
    composed = unicodedata.normalize("NFC", line)
    return " ".join("".join(c for c in composed if unicodedata.category(c) not in ("Cc", "Cf") or c.isspace()).split())
