"""Filters of sentence pairs, and the normalisation before them: each rule is a frozen dataclass with ``keep()``.

``keep()`` is a polars expression over the columns ``source`` and ``target`` (normalised, never null) that is true for
the pairs to keep. Words are separated by white space. To add a rule, add a class here, or in ``language_filters``
if it needs words of a language.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

from model.config.keying import require, unkeyed, unkeyed_default
from model.config.normalise import PLAIN_QUOTES, REMOVED, STANDARD, UNEVEN, Normalise
from tasks.lazy_libraries import pl

SIDES = ("source", "target")
Evidence = tuple[str, str]
"""What a rule measured on a pair and what it allows, as text; both empty for a rule that measures nothing."""
KNOWN = "known"
"""Column that ``clean`` adds for NotIn: whether a side equals a line of an excluded set."""


class Filter(Protocol):
    """A rule for one pair at a time, or Distinct."""

    @property
    def name(self) -> str:
        """The rule's name in ``rejected.parquet`` and in the facts."""
        ...

    def keep(self) -> pl.Expr:
        """True for a pair to keep."""
        ...


class NamedFilter:
    @property
    def name(self) -> str:
        return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(self).__name__).lower()

    def evidence(self, pair: pl.DataFrame) -> Evidence:  # noqa: ARG002
        """The evidence for the only row of ``pair`` (columns ``source``, ``target``)."""
        return "", ""


def word_count(side: str) -> pl.Expr:
    """The number of words of the side."""
    text = pl.col(side)
    # If single spaces are the only white space, counting them is four times faster than counting words.
    odd = text.str.contains(r"^$|^ |  | $|[\s--\x20]")
    counted = pl.when(odd).then(text).otherwise(pl.lit("")).str.count_matches(r"\S+")
    return pl.when(odd).then(counted).otherwise(text.str.count_matches(" ") + 1)


def _both(pair: pl.DataFrame, count: Callable[[str], pl.Expr]) -> str:
    """The value of ``count`` for each side of the only row: ``12 and 1,300``."""
    return " and ".join(f"{pair.select(count(side)).item() or 0:,}" for side in SIDES)


def _beside(value: float, most: float) -> str:
    """Show two decimals, or four if rounding to two would cross the limit."""
    return f"{value:.2f}" if (round(value, 2) > most) == (value > most) else f"{value:.4f}"


@dataclass(frozen=True)
class Empty(NamedFilter):
    """Removes pairs with an empty side. For every corpus: the paper's data has 11,835 of them in En-De."""

    def keep(self) -> pl.Expr:
        return pl.all_horizontal(pl.col(side).str.strip_chars() != "" for side in SIDES)

    def evidence(self, pair: pl.DataFrame) -> Evidence:
        return (
            f"{_both(pair, lambda side: pl.col(side).str.strip_chars().str.len_chars())} characters",
            "at least 1 on each side",
        )


@dataclass(frozen=True)
class InvalidUnicode(NamedFilter):
    """Removes pairs with invalid UTF-8 (U+FFFD), noncharacters, private-use characters, remaining control characters,
    and UTF-8 that was decoded as Latin-1 (``fÃ¼r``, ``â€œ``). For every corpus, especially web text."""

    PATTERN: ClassVar[str] = (
        r"[\x{FFFD}-\x{FFFF}\x{FDD0}-\x{FDEF}\p{Co}]|[\p{Cc}--\s]|[ÃÂ][\x{A1}-\x{BF}]|Ã[ŸŽžœŒŠš„ƒ†‡ˆ‰€]|â€"
    )

    def keep(self) -> pl.Expr:
        return pl.all_horizontal(~pl.col(side).str.contains(self.PATTERN) for side in SIDES)

    def evidence(self, pair: pl.DataFrame) -> Evidence:
        first = [pair.select(pl.col(side).str.extract(f"({self.PATTERN})")).item() for side in SIDES]
        codes = [" ".join(f"U+{ord(c):04X}" for c in text or "") for text in first]
        found = [f"{code} in the {side}" for side, code in zip(SIDES, codes, strict=True) if code]
        return ", ".join(found), "none" if found else ""


@dataclass(frozen=True)
class NoLetters(NamedFilter):
    """Removes pairs with a side without any letter (``.``, ``* * *``, ``2017``). For every corpus with section numbers
    and rules."""

    def keep(self) -> pl.Expr:
        return pl.all_horizontal(pl.col(side).str.contains(r"\p{L}") for side in SIDES)

    def evidence(self, pair: pl.DataFrame) -> Evidence:
        letters = _both(pair, lambda side: pl.col(side).str.count_matches(r"\p{L}"))
        return f"{letters} letters", "at least 1 on each side"


@dataclass(frozen=True)
class Length(NamedFilter):
    """Removes pairs with a side under ``min`` or over ``max`` words, or over ``max_chars`` characters (for languages
    without spaces). Set ``min`` above 1 only where single words are noise."""

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

    def evidence(self, pair: pl.DataFrame) -> Evidence:
        found = f"{_both(pair, word_count)} words, {_both(pair, lambda side: pl.col(side).str.len_chars())} characters"
        return found, f"{self.min} to {self.max} words, at most {self.max_chars:,} characters"


@dataclass(frozen=True)
class LengthRatio(NamedFilter):
    """Removes pairs whose longer side has more than ``max`` times the words of the shorter: a cheap sign of
    misalignment. For languages with spaces; 2 to 2.5 suits European ones and costs a few short correct pairs."""

    max: float = 2.5

    def __post_init__(self) -> None:
        require(self.max >= 1, "length_ratio.max", self.max, "a number of at least 1")

    def keep(self) -> pl.Expr:
        # Repeat no expression larger than ``word_count``: polars would count the words again for each.
        source, target = (word_count(side) for side in SIDES)
        most = pl.lit(float(self.max))
        return (source <= most * pl.max_horizontal(target, 1)) & (target <= most * pl.max_horizontal(source, 1))

    def evidence(self, pair: pl.DataFrame) -> Evidence:
        source, target = (max(pair.select(word_count(side)).item(), 1) for side in SIDES)
        return f"ratio {_beside(max(source, target) / min(source, target), self.max)}", f"at most {self.max:g}"


@dataclass(frozen=True)
class OverlongWord(NamedFilter):
    """Removes pairs with a word over ``max`` characters: addresses, tables, missing spaces. German compounds reach 40;
    not for languages without spaces."""

    max: int = 60

    def __post_init__(self) -> None:
        require(1 <= self.max <= 1000, "overlong_word.max", self.max, "1 to 1000 characters")

    def keep(self) -> pl.Expr:
        return pl.all_horizontal(~pl.col(side).str.contains(rf"\S{{{self.max + 1}}}") for side in SIDES)

    def evidence(self, pair: pl.DataFrame) -> Evidence:
        lengths = pl.element().str.len_chars()
        longest = _both(pair, lambda side: pl.col(side).str.extract_all(r"\S+").list.eval(lengths).list.max())
        return f"longest words {longest}", f"at most {self.max} characters"


@dataclass(frozen=True)
class Identical(NamedFilter):
    """Removes pairs whose sides are equal, which are usually untranslated text. Also removes the few lines that are
    correct that way (names, formulas)."""

    def keep(self) -> pl.Expr:
        return pl.col("source") != pl.col("target")


@dataclass(frozen=True)
class Script(NamedFilter):
    """Removes pairs in which more than the share ``max_other`` of a side's characters are letters of another script.
    For web text. Scripts have their Unicode names."""

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
        return pl.all_horizontal(self._others(side) <= self.max_other * pl.col(side).str.len_chars() for side in SIDES)

    def evidence(self, pair: pl.DataFrame) -> Evidence:
        shares = (self._others(side) / pl.max_horizontal(pl.col(side).str.len_chars(), 1) for side in SIDES)
        found = " and ".join(_beside(pair.select(share).item(), self.max_other) for share in shares)
        return f"{found} of another script", f"at most {self.max_other:g}"

    def _others(self, side: str) -> pl.Expr:
        """The number of letters of another script."""
        return pl.col(side).str.count_matches(rf"[\p{{L}}--\p{{{getattr(self, side)}}}]")


@dataclass(frozen=True)
class NotIn(NamedFilter):
    """Removes pairs with a side that equals a line of the same side in a set named in ``Filters.exclude``. For every
    run that reports a score. Reads the column ``known``."""

    def keep(self) -> pl.Expr:
        return ~pl.col(KNOWN)


@dataclass(frozen=True)
class Distinct(NamedFilter):
    """Removes repetitions of a ``pair``, or of a ``source`` or ``target`` side, and keeps the first in reading order.
    ``source`` also drops further translations of a sentence, which rarely suits small clean corpora. With ``near``,
    case, punctuation and white space are ignored, which suits crawled text."""

    on: Literal["pair", "source", "target"] = "pair"
    near: bool = unkeyed_default(False)

    def __post_init__(self) -> None:
        require(self.on in ("pair", *SIDES), "distinct.on", self.on, "pair, source or target")

    @property
    def name(self) -> str:
        return "_".join(("near" * self.near, "distinct", self.on * (self.on != "pair"))).strip("_")

    def value(self) -> pl.Expr:
        """A 64-bit number of a pair; pairs with the same number are repetitions, wherever they are in the corpus."""
        sides = [self.compared(side) for side in SIDES if self.on in ("pair", side)]
        text = pl.struct(sides) if self.on == "pair" else sides[0]
        return text.hash(seed=1).alias("value")  # any collision among 4.5M pairs has probability 5e-7

    def keep(self) -> pl.Expr:
        """True for a pair to keep, over all pairs that earlier rules kept, in reading order."""
        return self.value().is_first_distinct()

    def compared(self, side: str) -> pl.Expr:
        """The text that is compared."""
        if not self.near:
            return pl.col(side)
        bare = pl.col(side).str.normalize("NFKC").str.to_lowercase().str.replace_all(r"[^\p{L}\p{M}\p{N}]+", "")
        # Text of punctuation alone is compared as it is.
        return pl.when(bare == "").then(pl.col(side)).otherwise(bare).alias(side)


_COMPOSED = r"[^\x00-\x{2FF}]"
"""Characters below U+0300 are composed already."""


def normalised(side: str, normalise: Normalise) -> pl.Expr:
    """The normalised column; normalising it again changes nothing."""
    patterns = [
        (normalise.control, REMOVED),
        (normalise.quotes, "|".join(PLAIN_QUOTES)),
        (normalise.nfc, _COMPOSED),
        (normalise.white_space, rf"{UNEVEN}|^\s|\s$"),
    ]
    pattern = "|".join(pattern for enabled, pattern in patterns if enabled)
    if not pattern:
        return pl.col(side)
    # Most lines need no change, so the slow replacements are applied only where a pattern matches.
    needed = pl.col(side).str.contains(pattern)
    text = pl.when(needed).then(pl.col(side)).otherwise(pl.lit(""))
    if normalise.control:
        text = text.str.replace_all(REMOVED, "")
    if normalise.quotes:
        for typographic, plain in PLAIN_QUOTES.items():
            text = text.str.replace_all(typographic, plain)
    if normalise.nfc:
        text = pl.when(text.str.contains(_COMPOSED)).then(text.str.normalize("NFC")).otherwise(text)
    if normalise.white_space:
        text = text.str.replace_all(UNEVEN, " ").str.strip_chars()
    return pl.when(needed).then(text).otherwise(pl.col(side)).alias(side)


@dataclass(frozen=True)
class Filters:
    """What ``clean`` does to text: normalisation, then the rules in order, then a shuffle by ``seed``.

    ``exclude`` names the sets whose lines the rule ``NotIn`` removes; each requires the other.
    """

    rules: tuple[Filter, ...] = ()
    """Rules in their order; the first that rejects a pair is counted."""
    normalise: Normalise = STANDARD
    """How lines are normalised before the rules see them."""
    exclude: tuple[str, ...] = ()
    """Sets whose lines are removed from the training text."""
    seed: int = 1
    """Seed of the shuffle."""
    max_rejected: float = unkeyed(0.2)
    """Largest share of pairs that rules may remove, not counting repetitions and lines of the sets. Above it ``clean``
    fails: the sides may be swapped, or the encoding or language may be wrong. 1 disables the check; corpora of
    fewer than 1,000 pairs are never checked."""

    def __post_init__(self) -> None:
        require(0 <= self.max_rejected <= 1, "filters.max_rejected", self.max_rejected, "a share from 0 to 1")
        names = [rule.name for rule in self.rules]
        once = "each rule once (filters.rules.Length.max=60 changes a value)"
        require(len(set(names)) == len(names), "filters.rules", names, once)
        if self.exclude:
            allowed = "rules with NotIn, such as Length(max=60),NotIn, since filters.exclude names sets"
            require("not_in" in names, "filters.rules", names, allowed)
        else:
            require("not_in" not in names, "filters.exclude", self.exclude, "at least one set, since NotIn is a rule")
