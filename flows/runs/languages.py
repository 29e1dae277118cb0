"""Chooses filters for the languages of a corpus; omits a filter that lacks data on a language."""

from tasks.cleaning.filters import (
    Distinct,
    Empty,
    Filter,
    Filters,
    Identical,
    InvalidUnicode,
    Length,
    LengthRatio,
    NoLetters,
    NotIn,
    OverlongWord,
    Script,
)
from tasks.cleaning.language_filters import STOP_WORDS, Language

_SCRIPTS = {
    "Latin": "af az bs ca cs cy da de en eo es et eu fi fr ga gl hr ht hu id is it ku la lb lt lv mg ms mt nb nl nn no "
    "oc pl pt ro rw sk sl so sq sv sw tl tr uz vi xh yo zu",
    "Cyrillic": "be bg kk ky mk mn ru tg uk",
    "Arabic": "ar fa ps ug ur",
    "Devanagari": "hi mr ne",
    "Hebrew": "he yi",
    **{"Greek": "el", "Armenian": "hy", "Georgian": "ka", "Bengali": "bn", "Tamil": "ta", "Hangul": "ko"},
}
SCRIPT_OF = {language: script for script, languages in _SCRIPTS.items() for language in languages.split()}
"""The script of each language that uses one script, by ISO 639-1 code."""
WITHOUT_SPACES = frozenset(("ja", "zh", "th", "lo", "km", "my", "bo", "yue", "dz"))
"""Languages without spaces between words: filters cannot count or measure their words."""


def standard_filters(source: str, target: str, words: Length, exclude: tuple[str, ...]) -> Filters:
    """Filters for small or noisy text: remove broken, overlong, foreign and repeated lines, and lines of the sets."""
    rules: list[Filter] = [Empty(), InvalidUnicode(), NoLetters()]
    spaced = not {source, target} & WITHOUT_SPACES
    if spaced:
        rules.append(OverlongWord())
    rules += [words if spaced else Length(1, words.max_chars, words.max_chars), Identical()]
    if source in SCRIPT_OF and target in SCRIPT_OF:
        rules.append(Script(SCRIPT_OF[source], SCRIPT_OF[target]))
    if source in STOP_WORDS and target in STOP_WORDS:
        rules.append(Language(source, target))
    if spaced:
        rules.append(LengthRatio(2.5))
    return Filters((*rules, *([NotIn()] if exclude else []), Distinct()), exclude=exclude)
