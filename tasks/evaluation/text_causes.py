"""Finds faults of translations or references that cost BLEU, and repairs a copy to measure the cost."""

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from model.data.word_splitting import moses_detokenizer
from model.metric_names import BLEU_LC
from tasks.evaluation.score_gap import Condition
from tasks.evaluation.translation_metrics import plain_quotes

SPLIT_OFF = re.compile(r" [.,;:!?](?= |$)|&(?:apos|quot|amp|#124);|@-@|##AT##|@@(?= |$)|▁")
"""Marks of tokens and pieces, absent in text: punctuation after a space, an escape, a split hyphen, a cut word."""
TOKENISED = 0.1
"""Lines count as tokenised if their share with such marks exceeds the other side's share by this."""


@dataclass(frozen=True)
class TextCause:
    """A cause with the repair of what is scored. ``is_fault``: no published score has this cause."""

    about: str
    is_fault: bool
    repair: Callable[[Condition], Condition]


def text_causes(what: Condition, language: str) -> list[TextCause]:
    """The causes found in texts in ``language`` (``de``); lower case is none if the metric ignores case."""
    found = []
    if _marks(what.written) > _marks(what.expected) + TOKENISED:
        found.append(TextCause("translations look tokenised", True, partial(_detokenised, language)))
    capitals = [any(line != line.lower() for line in side) for side in (what.written, what.expected)]
    have_case = all(any(line != line.upper() for line in side) for side in (what.written, what.expected))
    if what.metric != BLEU_LC and have_case and capitals[0] != capitals[1]:
        side = "references" if capitals[0] else "translations"
        found.append(TextCause(f"{side} are lower-cased, the other side is not", True, partial(_both, str.lower)))
    for about, change in {"typographic quotes": plain_quotes, "unnormalised characters or spaces": _normal}.items():
        if any(change(line) != line for line in (*what.written, *what.expected)):
            found.append(TextCause(about, False, partial(_both, change)))
    return found


def _marks(lines: Sequence[str]) -> float:
    return sum(SPLIT_OFF.search(line) is not None for line in lines) / max(len(lines), 1)


def _detokenised(language: str, what: Condition) -> Condition:
    moses = moses_detokenizer(language)
    whole = (re.sub(r"@@(?: |$)", "", line) if "▁" not in line else line.replace(" ", "") for line in what.written)
    words = (re.sub(r" ?(?:@-@|##AT##-##AT##) ?", "-", line.replace("▁", " ")) for line in whole)
    return what._replace(written=[moses.detokenize(line.split()) for line in words])


def _both(change: Callable[[str], str], what: Condition) -> Condition:
    return Condition([change(line) for line in what.written], [change(line) for line in what.expected], what.metric)


def _normal(line: str) -> str:
    """Normalise to composed characters, no invisible characters, single spaces."""
    composed = unicodedata.normalize("NFC", line)
    return " ".join("".join(c for c in composed if unicodedata.category(c) not in ("Cc", "Cf") or c.isspace()).split())
