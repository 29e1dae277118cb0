"""What leaves the training text, as values: each rule is a frozen dataclass with ``keep() -> pl.Expr``.

A rule sees the columns ``source`` and ``target`` (normalised, never null) and, where its docstring says so, one that
``clean`` adds. It keeps a pair where the expression is true. Words are what white space separates. To add a rule, add a
class here. Nothing is read or written here.
"""

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

import polars as pl

from model.config.keying import require, unkeyed_default

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


class _NamedFilter:
    @property
    def name(self) -> str:
        return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(self).__name__).lower()


def word_count(side: str) -> pl.Expr:
    """How many words the side has."""
    text = pl.col(side)
    # Where single spaces are all the white space, counting them is four times faster than counting words.
    odd = text.str.contains(r"^$|^ |  | $|[\s--\x20]")
    slowly = pl.when(odd).then(text).otherwise(pl.lit("")).str.count_matches(r"\S+")
    return pl.when(odd).then(slowly).otherwise(text.str.count_matches(" ") + 1)


@dataclass(frozen=True)
class Empty(_NamedFilter):
    """Removes pairs with an empty side. For every corpus: the paper's data has 11,835 of them in En-De."""

    def keep(self) -> pl.Expr:
        return pl.all_horizontal(pl.col(side).str.strip_chars() != "" for side in SIDES)


@dataclass(frozen=True)
class InvalidUnicode(_NamedFilter):
    """Removes pairs with bytes that were no UTF-8 (U+FFFD), noncharacters, private-use characters, control characters
    that normalising left, and UTF-8 that was read as Latin-1 (``fÃ¼r``, ``â€œ``). For every corpus, web text above all.
    """

    PATTERN: ClassVar[str] = (
        r"[\x{FFFD}-\x{FFFF}\x{FDD0}-\x{FDEF}\p{Co}]|[\p{Cc}--\s]|[ÃÂ][\x{A1}-\x{BF}]|Ã[ŸŽžœŒŠš„ƒ†‡ˆ‰€]|â€"
    )

    def keep(self) -> pl.Expr:
        return pl.all_horizontal(~pl.col(side).str.contains(self.PATTERN) for side in SIDES)


@dataclass(frozen=True)
class NoLetters(_NamedFilter):
    """Removes pairs with a side without any letter (``.``, ``* * *``, ``2017``). For every corpus that has section
    numbers and rules."""

    def keep(self) -> pl.Expr:
        return pl.all_horizontal(pl.col(side).str.contains(r"\p{L}") for side in SIDES)


@dataclass(frozen=True)
class Length(_NamedFilter):
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
        fits = [word_count(side).is_between(self.min, self.max) for side in SIDES]
        return pl.all_horizontal(*fits, *(pl.col(side).str.len_chars() <= self.max_chars for side in SIDES))


@dataclass(frozen=True)
class LengthRatio(_NamedFilter):
    """Removes pairs whose longer side has more than ``max`` times the words of the shorter: a cheap sign of
    misalignment. For languages that both write words; 2 to 2.5 suits European ones and costs a few short true pairs."""

    max: float = 2.5

    def __post_init__(self) -> None:
        require(self.max >= 1, "length_ratio.max", self.max, "a number of at least 1")

    def keep(self) -> pl.Expr:
        # Nothing larger than ``word_count`` may stand here twice: polars would count once more for each such
        # expression.
        source, target = (word_count(side) for side in SIDES)
        most = pl.lit(float(self.max))
        return (source <= most * pl.max_horizontal(target, 1)) & (target <= most * pl.max_horizontal(source, 1))


@dataclass(frozen=True)
class OverlongWord(_NamedFilter):
    """Removes pairs with a word over ``max`` characters: addresses, tables, missing spaces. German compounds reach 40;
    not for languages that write no spaces."""

    max: int = 60

    def __post_init__(self) -> None:
        require(1 <= self.max <= 1000, "overlong_word.max", self.max, "1 to 1000 characters")

    def keep(self) -> pl.Expr:
        return pl.all_horizontal(~pl.col(side).str.contains(rf"\S{{{self.max + 1}}}") for side in SIDES)


@dataclass(frozen=True)
class Identical(_NamedFilter):
    """Removes pairs of which both sides are the same: text that nobody translated. It also takes the few lines that
    are right so (names, formulas)."""

    def keep(self) -> pl.Expr:
        return pl.col("source") != pl.col("target")


@dataclass(frozen=True)
class Script(_NamedFilter):
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
class Language(_NamedFilter):
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
class NotIn(_NamedFilter):
    """Removes pairs of which a side equals a line of the same side in a set named in ``Filters.exclude``. For every run
    that reports a score. Reads the column ``known``."""

    def keep(self) -> pl.Expr:
        return ~pl.col(KNOWN)


class CrossPairFilter(ABC):
    """A rule that looks at pairs together: those with the same first value, wherever they stand in the corpus."""

    @abstractmethod
    def values(self) -> tuple[pl.Expr, ...]:
        """Named 64-bit numbers of a pair; pairs that differ in the first have nothing to do with each other."""

    @abstractmethod
    def stays(self) -> pl.Expr:
        """True for a pair that stays, over the values of all pairs that earlier rules left, in reading order."""

    def keep(self) -> pl.Expr:
        """The same over a frame of pairs."""
        columns = pl.struct(self.values())
        return columns.map_batches(lambda values: values.struct.unnest().select(self.stays()).to_series())


def text_hash(text: pl.Expr) -> pl.Expr:
    """A 64-bit number that is the same for the same text (by chance also for others: 5e-7 for 4.5M pairs)."""
    return text.hash(seed=1)


@dataclass(frozen=True)
class Distinct(CrossPairFilter):
    """Removes pairs that were there before: the same ``pair``, or the same ``source`` or ``target`` side. The first in
    reading order stays. ``source`` also drops further translations of a sentence, which suits small clean corpora
    seldom. With ``near``, sides are the same if their letters and digits are, whatever the case, the punctuation and
    the white space: for crawled text, which repeats itself so."""

    on: Literal["pair", "source", "target"] = "pair"
    near: bool = unkeyed_default(False)

    def __post_init__(self) -> None:
        require(self.on in ("pair", *SIDES), "distinct.on", self.on, "pair, source or target")

    @property
    def name(self) -> str:
        return "_".join(("near" * self.near, "distinct", self.on * (self.on != "pair"))).strip("_")

    def values(self) -> tuple[pl.Expr, ...]:
        sides = [self.compared(side) for side in SIDES if self.on in ("pair", side)]
        return (text_hash(pl.struct(sides) if self.on == "pair" else sides[0]).alias("value"),)

    def stays(self) -> pl.Expr:
        return pl.col("value").is_first_distinct()

    def compared(self, side: str) -> pl.Expr:
        """What must be the same."""
        if not self.near:
            return pl.col(side)
        bare = pl.col(side).str.normalize("NFKC").str.to_lowercase().str.replace_all(r"[^\p{L}\p{M}\p{N}]+", "")
        # What holds nothing but marks is only itself.
        return pl.when(bare == "").then(pl.col(side)).otherwise(bare).alias(side)


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

    _CONTROL: ClassVar[str] = r"[\p{Cc}--\s]|[\x{AD}\x{200B}\x{200E}\x{200F}\x{202A}-\x{202E}\x{2060}-\x{2069}\x{FEFF}]"
    _DOUBLE: ClassVar[str] = "[“”„‟«»]"
    _SINGLE: ClassVar[str] = "[‘’‚‛‹›]"
    _COMPOSED: ClassVar[str] = r"[^\x00-\x{2FF}]"
    """What lies below U+0300 is composed already."""
    _WHITE: ClassVar[str] = r"\s{2,}|[\s--\x20]"

    def expression(self, side: str) -> pl.Expr:
        """The rewritten column. Doing it twice changes nothing more."""
        rewriting = [
            (self.control, self._CONTROL),
            (self.quotes, f"{self._DOUBLE}|{self._SINGLE}"),
            (self.nfc, self._COMPOSED),
            (self.white_space, rf"{self._WHITE}|^\s|\s$"),
        ]
        marks = "|".join(pattern for asked, pattern in rewriting if asked)
        if not marks:
            return pl.col(side)
        # Most lines need nothing: they are spared the slow way.
        needed = pl.col(side).str.contains(marks)
        text = pl.when(needed).then(pl.col(side)).otherwise(pl.lit(""))
        if self.control:
            text = text.str.replace_all(self._CONTROL, "")
        if self.quotes:
            text = text.str.replace_all(self._DOUBLE, '"').str.replace_all(self._SINGLE, "'")
        if self.nfc:
            text = pl.when(text.str.contains(self._COMPOSED)).then(text.str.normalize("NFC")).otherwise(text)
        if self.white_space:
            text = text.str.replace_all(self._WHITE, " ").str.strip_chars()
        return pl.when(needed).then(text).otherwise(pl.col(side)).alias(side)


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
