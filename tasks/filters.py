"""What leaves the training text, as values: each rule is a frozen dataclass with ``keep() -> pl.Expr``.

A rule sees the columns ``source`` and ``target`` (normalised, never null) and, where its docstring says so, one that
``clean`` adds. It keeps a pair where the expression is true. Words are what white space separates. To add a rule, add a
class here. Nothing is read or written here.
"""

import re
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

import polars as pl

from model.fields import require

SIDES = ("source", "target")
KNOWN = "known"
"""Column that clean adds for NotIn: whether a side equals a line of an excluded set."""


class Filter(Protocol):
    """A rule for one pair at a time, or Distinct."""

    @property
    def name(self) -> str:
        """What ``rejected.parquet`` and the facts call it."""
        ...

    def keep(self) -> pl.Expr:
        """True for a pair that stays."""
        ...


class _Named:
    @property
    def name(self) -> str:
        return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(self).__name__).lower()


def words(side: str) -> pl.Expr:
    """How many words the side has."""
    return pl.col(side).str.count_matches(r"\S+")


@dataclass(frozen=True)
class Empty(_Named):
    """Removes pairs with an empty side. For every corpus: the paper's data has 11,835 of them in En-De."""

    def keep(self) -> pl.Expr:
        return pl.all_horizontal(pl.col(side).str.strip_chars() != "" for side in SIDES)


@dataclass(frozen=True)
class InvalidUnicode(_Named):
    """Removes pairs with bytes that were no UTF-8 (U+FFFD), noncharacters, private-use characters, control characters
    that normalising left, and UTF-8 that was read as Latin-1 (``fÃ¼r``, ``â€œ``). For every corpus, web text above all.
    """

    PATTERN: ClassVar[str] = (
        r"[\x{FFFD}-\x{FFFF}\x{FDD0}-\x{FDEF}\p{Co}]|[\p{Cc}--\s]|[ÃÂ][\x{A1}-\x{BF}]|Ã[ŸŽžœŒŠš„ƒ†‡ˆ‰€]|â€"
    )

    def keep(self) -> pl.Expr:
        return pl.all_horizontal(~pl.col(side).str.contains(self.PATTERN) for side in SIDES)


@dataclass(frozen=True)
class NoLetters(_Named):
    """Removes pairs with a side without any letter (``.``, ``* * *``, ``2017``). For every corpus that has section
    numbers and rules."""

    def keep(self) -> pl.Expr:
        return pl.all_horizontal(pl.col(side).str.contains(r"\p{L}") for side in SIDES)


@dataclass(frozen=True)
class Length(_Named):
    """Removes pairs with a side under ``min`` or over ``max`` words, or over ``max_chars`` characters (for languages
    that write no spaces). ``min`` above 1 only where single words are noise."""

    min: int = 1
    max: int = 150
    max_chars: int = 5_000

    def __post_init__(self) -> None:
        require(self.min >= 1, "length.min", self.min, "a whole number of words of at least 1")
        require(self.max >= self.min, "length.max", self.max, f"a whole number of words of at least min, {self.min}")
        require(self.max_chars >= 1, "length.max_chars", self.max_chars, "a whole number of characters of at least 1")

    def keep(self) -> pl.Expr:
        fits = [words(side).is_between(self.min, self.max) for side in SIDES]
        return pl.all_horizontal(*fits, *(pl.col(side).str.len_chars() <= self.max_chars for side in SIDES))


@dataclass(frozen=True)
class LengthRatio(_Named):
    """Removes pairs whose longer side has more than ``max`` times the words of the shorter: a cheap sign of
    misalignment. For languages that both write words; 2 to 2.5 suits European ones and costs a few short true pairs."""

    max: float = 2.5

    def __post_init__(self) -> None:
        require(self.max >= 1, "length_ratio.max", self.max, "a number of at least 1")

    def keep(self) -> pl.Expr:
        source, target = (pl.max_horizontal(words(side), pl.lit(1)).cast(pl.Float64) for side in SIDES)
        return pl.max_horizontal(source, target) <= self.max * pl.min_horizontal(source, target)


@dataclass(frozen=True)
class OverlongWord(_Named):
    """Removes pairs with a word over ``max`` characters: addresses, tables, missing spaces. German compounds reach 40;
    not for languages that write no spaces."""

    max: int = 60

    def __post_init__(self) -> None:
        require(1 <= self.max <= 1000, "overlong_word.max", self.max, "1 to 1000 characters")

    def keep(self) -> pl.Expr:
        return pl.all_horizontal(~pl.col(side).str.contains(rf"\S{{{self.max + 1}}}") for side in SIDES)


@dataclass(frozen=True)
class Identical(_Named):
    """Removes pairs of which both sides are the same: text that nobody translated. It also takes the few lines that
    are right so (names, formulas)."""

    def keep(self) -> pl.Expr:
        return pl.col("source") != pl.col("target")


@dataclass(frozen=True)
class Script(_Named):
    """Removes pairs with a side of which more than ``max_other`` of the characters are letters of another script. For
    web text. Names as Unicode has them."""

    source: str = "Latin"
    target: str = "Latin"
    max_other: float = 0.3

    KNOWN: ClassVar[tuple[str, ...]] = (
        *("Arabic", "Armenian", "Bengali", "Cyrillic", "Devanagari", "Georgian", "Greek", "Han", "Hangul", "Hebrew"),
        *("Hiragana", "Katakana", "Latin", "Tamil", "Thai"),
    )

    def __post_init__(self) -> None:
        for side in SIDES:
            require(getattr(self, side) in self.KNOWN, f"script.{side}", getattr(self, side), ", ".join(self.KNOWN))
        require(0 <= self.max_other < 1, "script.max_other", self.max_other, "0 up to, not including, 1")

    def keep(self) -> pl.Expr:
        return pl.all_horizontal(self._mostly(side) for side in SIDES)

    def _mostly(self, side: str) -> pl.Expr:
        other = pl.col(side).str.count_matches(rf"[\p{{L}}--\p{{{getattr(self, side)}}}]")
        return other <= self.max_other * pl.col(side).str.len_chars()


STOP_WORDS: dict[str, str] = {
    "en": "the|of|and|is|are|with|for|that|this|it|you|they|have|has|from|which|not|be|by|we|our|their|does|did|"
    "should|must",
    "de": "der|das|und|ist|sind|mit|für|nicht|ein|eine|einen|einem|einer|den|dem|auf|sich|zu|wir|ich|sie|er|haben|von|"
    "im|wird|auch|dass|daß|bei|oder|nach|über|kann|diese|dieser|mein|meine|dein|deine|ihr|ihre|sein|seine",
    "fr": "le|les|et|est|une|dans|pour|que|qui|sur|avec|pas|elle|sont|aux|cette|ces|nous|vous|mais|par|il|ou|être|"
    "un|au|des",
    "es": "el|los|las|y|una|para|por|con|del|su|como|más|pero|sus|este|esta|muy|lo|al",
}
"""Common words by language, without those that another of these languages often writes the same."""


@dataclass(frozen=True)
class Language(_Named):
    """Removes pairs with a side that looks like another language: at least ``least`` words that are common in another
    of the known languages and none that is common in its own. Finds swapped sides and text in a third language;
    cautious, so short lines pass. For web text and mixtures."""

    source: str
    target: str
    least: int = 2

    def __post_init__(self) -> None:
        for side in SIDES:
            require(getattr(self, side) in STOP_WORDS, f"language.{side}", getattr(self, side), ", ".join(STOP_WORDS))
        require(self.least >= 1, "language.least", self.least, "a whole number of words of at least 1")

    def keep(self) -> pl.Expr:
        return ~pl.any_horizontal(self._foreign(side, getattr(self, side)) for side in SIDES)

    def _foreign(self, side: str, own: str) -> pl.Expr:
        others = [self._common(side, language) >= self.least for language in STOP_WORDS if language != own]
        return (self._common(side, own) == 0) & pl.any_horizontal(others)

    @staticmethod
    def _common(side: str, language: str) -> pl.Expr:
        # Word ends by ASCII, several times faster than by Unicode; ß and accents inside these words do no harm.
        return pl.col(side).str.count_matches(rf"(?i)(?-u:\b)(?:{STOP_WORDS[language]})(?-u:\b)")


@dataclass(frozen=True)
class NotIn(_Named):
    """Removes pairs of which a side equals a line of the same side in a set named in ``Filters.exclude``. For every run
    that reports a score. Reads the column ``known``."""

    def keep(self) -> pl.Expr:
        return ~pl.col(KNOWN)


@dataclass(frozen=True)
class Distinct:
    """Removes pairs that were there before: the same ``pair``, or the same ``source`` or ``target`` side. The first in
    reading order stays. ``source`` also drops further translations of a sentence, which suits small clean corpora
    seldom."""

    on: Literal["pair", "source", "target"] = "pair"

    def __post_init__(self) -> None:
        require(self.on in ("pair", *SIDES), "distinct.on", self.on, "pair, source or target")

    @property
    def name(self) -> str:
        return "distinct" if self.on == "pair" else f"distinct_{self.on}"

    def value(self) -> pl.Expr:
        """A 64-bit number that is the same for the same text (by chance also for others: 5e-7 for 4.5M pairs)."""
        return (pl.struct(SIDES) if self.on == "pair" else pl.col(self.on)).hash(seed=1)

    def keep(self) -> pl.Expr:
        """Over all pairs that earlier rules left, in reading order."""
        return self.value().is_first_distinct()


@dataclass(frozen=True)
class Normalise:
    """How each line is rewritten before the rules see it; with all fields off, not at all.

    ``nfc``: Unicode's composed form. ``control``: control, zero-width and bidirectional marks go (the joiners that
    scripts need stay). ``white_space``: any run becomes one space, none at the ends. ``quotes``: typographic quotation
    marks become ``"`` and ``'``.
    """

    nfc: bool = True
    control: bool = True
    white_space: bool = True
    quotes: bool = False

    def expression(self, side: str) -> pl.Expr:
        """The rewritten column. Doing it twice changes nothing more."""
        text = pl.col(side)
        if self.control:
            text = text.str.replace_all(
                r"[\p{Cc}--\s]|[\x{AD}\x{200B}\x{200E}\x{200F}\x{202A}-\x{202E}\x{2060}-\x{2069}\x{FEFF}]", ""
            )
        if self.quotes:
            text = text.str.replace_all("[“”„‟«»]", '"').str.replace_all("[‘’‚‛‹›]", "'")
        if self.nfc:
            # What lies below U+0300 is composed already: most lines are spared the slow way.
            text = pl.when(text.str.contains(r"[^\x00-\x{2FF}]")).then(text.str.normalize("NFC")).otherwise(text)
        if self.white_space:
            text = text.str.replace_all(r"\s{2,}|[\s--\x20]", " ").str.strip_chars()
        return text.alias(side)


@dataclass(frozen=True)
class Filters:
    """All that ``clean`` does to text: rewriting, then the rules in order, then a shuffle by ``seed``.

    ``exclude`` names the sets whose lines ``NotIn`` removes; one makes no sense without the other.
    """

    rules: tuple[Filter, ...] = ()
    normalise: Normalise = Normalise()
    exclude: tuple[str, ...] = ()
    seed: int = 1

    def __post_init__(self) -> None:
        names = [rule.name for rule in self.rules]
        require(len(set(names)) == len(names), "filters.rules", names, "each rule once")
        if self.exclude:
            require("not_in" in names, "filters.rules", names, "rules with NotIn, since filters.exclude names sets")
        else:
            require("not_in" not in names, "filters.exclude", self.exclude, "at least one set, since NotIn is a rule")
