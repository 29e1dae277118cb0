"""Filters for noisy text: crawled pages, mined pairs, mixtures of sources. Few of them suit clean corpora."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from model.config.keying import require
from tasks.cleaning.filters import SIDES, CrossPairFilter, _NamedFilter, text_hash
from tasks.lazy_libraries import pl


@dataclass(frozen=True)
class RepeatedWords(_NamedFilter):
    """Removes pairs with a side in which the same ``n`` words occur ``times`` times or more in a row (``buy now buy now
    buy now``), ignoring case. For crawled and machine-generated text."""

    n: int = 2
    times: int = 3

    def __post_init__(self) -> None:
        require(1 <= self.n <= 10, "repeated_words.n", self.n, "1 to 10 words")
        require(self.times >= 2, "repeated_words.times", self.times, "a whole number of at least 2")

    def keep(self) -> pl.Expr:
        return pl.all_horizontal(self.longest(side) < self.n * (self.times - 1) for side in SIDES)

    def longest(self, side: str) -> pl.Expr:
        """The longest run of words that equal the word ``n`` before: ``n * (times - 1)`` for a repetition."""
        each = pl.col(side).str.to_lowercase().str.extract_all(r"\S+")
        same = pl.element() == pl.element().shift(self.n)
        # The number of breaks before a word identifies its run.
        breaks = (~same.fill_null(False)).cast(pl.UInt32).cum_sum()
        # The breaking word itself is counted too, hence - 1.
        return each.list.eval(breaks.value_counts().struct.field("count").max() - 1).list.first().fill_null(0)


@dataclass(frozen=True)
class NumbersDiffer(_NamedFilter):
    """Removes pairs whose sides do not contain the same numbers in digits equally often, in any order. Points, commas
    in numbers are ignored: ``1,500.5`` is ``1.500,5``. For mined pairs, where a different number often means a
    different sentence; not where one side spells numbers out or separates thousands by spaces."""

    def keep(self) -> pl.Expr:
        found = (pl.col(side).str.extract_all(r"[0-9]+(?:[.,][0-9]+)*") for side in SIDES)
        digits = pl.element().str.replace_all("[.,]", "")
        source, target = (numbers.list.eval(digits).list.sort().list.join(" ") for numbers in found)
        return source == target


@dataclass(frozen=True)
class AddressesDiffer(_NamedFilter):
    """Removes pairs whose sides contain different numbers of web and mail addresses. For crawled text, where one side
    lost its links or is a list of links."""

    PATTERN: ClassVar[str] = r"(?i)\bhttps?://\S+|\bwww\.\S+|\S+@\S+\.\S+"

    def keep(self) -> pl.Expr:
        source, target = (pl.col(side).str.count_matches(self.PATTERN) for side in SIDES)
        return source == target


@dataclass(frozen=True)
class Markup(_NamedFilter):
    """Removes pairs with a side that contains HTML: tags, comments, or entities (``&nbsp;``, ``&#8217;``). For crawled
    text. Not for localisation files, whose tags belong to the text, nor for WMT's official files, which contain
    ``&quot;`` in some correct lines."""

    PATTERN: ClassVar[str] = (
        r"(?i)</?[a-z][a-z0-9]*(?:\s[^<>]*)?/?>|<!--|&(?:[a-z][a-z0-9]{1,7}|#[0-9]{1,6}|#x[0-9a-f]{1,6});"
    )

    def keep(self) -> pl.Expr:
        return pl.all_horizontal(~pl.col(side).str.contains(self.PATTERN) for side in SIDES)


@dataclass(frozen=True)
class Alphabet(_NamedFilter):
    """Removes pairs with a side whose share of letters among characters without white space is below ``source`` or
    ``target``: tables, price lists, code. For crawled text. Unlike ``Script``, accepts letters of any script."""

    source: float = 0.5
    target: float = 0.5

    def __post_init__(self) -> None:
        for side in SIDES:
            share = getattr(self, side)
            require(0 <= share <= 1, f"alphabet.{side}", share, "0 to 1")

    def keep(self) -> pl.Expr:
        def fits(side: str) -> pl.Expr:
            least: pl.Expr = getattr(self, side) * pl.col(side).str.count_matches(r"\S")
            return pl.col(side).str.count_matches(r"[\p{L}\p{M}]") >= least

        return pl.all_horizontal(map(fits, SIDES))


@dataclass(frozen=True)
class ManyPartners(CrossPairFilter):
    """Removes all pairs whose ``on`` side occurs with more than ``max`` different other sides among the pairs that
    earlier rules kept: headings, menus and greetings aligned with anything. For crawled and mined text; not for
    subtitles, where short lines correctly have many partners."""

    on: Literal["source", "target"] = "source"
    max: int = 10

    def __post_init__(self) -> None:
        require(self.on in SIDES, "many_partners.on", self.on, "source or target")
        require(self.max >= 1, "many_partners.max", self.max, "a whole number of at least 1")

    @property
    def name(self) -> str:
        return f"many_partners_{self.on}"

    def values(self) -> tuple[pl.Expr, ...]:
        (other,) = (side for side in SIDES if side != self.on)
        return text_hash(pl.col(self.on)).alias("value"), text_hash(pl.col(other)).alias("partner")

    def stays(self) -> pl.Expr:
        return pl.col("partner").n_unique().over("value") <= self.max
