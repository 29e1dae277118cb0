"""Filters that recognise languages by common words."""

from __future__ import annotations

from dataclasses import dataclass

from model.config.keying import require
from tasks.cleaning.filters import SIDES, Evidence, NamedFilter
from tasks.lazy_libraries import pl

STOP_WORDS: dict[str, str] = {
    "en": "the|of|and|is|are|with|for|that|this|it|you|they|have|has|from|which|not|be|by|we|our|their|does|did|"
    "should|must",
    "de": "der|das|und|ist|sind|mit|für|nicht|ein|eine|einen|einem|einer|den|dem|auf|sich|zu|wir|ich|sie|er|haben|von|"
    "im|wird|auch|dass|daß|bei|oder|nach|über|kann|diese|dieser|mein|meine|dein|deine|ihr|ihre|sein|seine",
    "fr": "le|les|et|est|une|dans|pour|que|qui|sur|avec|pas|elle|sont|aux|cette|ces|nous|vous|mais|par|il|ou|être|"
    "un|au|des",
    "es": "el|los|las|y|una|para|por|con|del|su|como|más|pero|sus|este|esta|muy|lo|al|que",
}
"""Common words by language, without words that are also common in another of these languages.

Except for ``que``: Spanish uses ``un`` and ``les`` too, so a Spanish line without another word of its list would count
as French.
"""


@dataclass(frozen=True)
class _LanguageFilter(NamedFilter):
    """A rule that needs common words of both languages."""

    source: str
    target: str
    least: int = 2

    def __post_init__(self) -> None:
        for side in SIDES:
            language = getattr(self, side)
            require(language in STOP_WORDS, f"{self.name}.{side}", language, ", ".join(STOP_WORDS))
        require(self.least >= 1, f"{self.name}.least", self.least, "a whole number of words of at least 1")


@dataclass(frozen=True)
class Language(_LanguageFilter):
    """Removes pairs with a side in another language: it has at least ``least`` common words of another known language
    and none of its own. Finds swapped sides and text in a third language; short lines pass. For web text
    and corpora of several languages."""

    def keep(self) -> pl.Expr:
        return ~pl.any_horizontal(self._foreign(side, getattr(self, side)) for side in SIDES)

    def evidence(self, pair: pl.DataFrame) -> Evidence:
        found = []
        for side in SIDES:
            own = getattr(self, side)
            counts = {language: pair.select(self.common(pl.col(side), language)).item() for language in STOP_WORDS}
            other = max((language for language in STOP_WORDS if language != own), key=lambda language: counts[language])
            found.append(f"{counts[own]} {own} and {counts[other]} {other}")
        return f"common words {', '.join(found)}", f"one of its own, or under {self.least} of another"

    def _foreign(self, side: str, own: str) -> pl.Expr:
        # Most lines have a word of their own language between spaces. To search for one is faster than to count all.
        known = pl.col(side).str.contains(rf"(?i)(?:^| )(?:{STOP_WORDS[own]})(?: |$)")
        unsure = pl.when(known).then(pl.lit("")).otherwise(pl.col(side))
        others = [self.common(unsure, language) >= self.least for language in STOP_WORDS if language != own]
        return (self.common(unsure, own) == 0) & pl.any_horizontal(others)

    @staticmethod
    def common(text: pl.Expr, language: str) -> pl.Expr:
        """The number of common words of ``language``. Letters of any script belong to words: no "we" in "Löwe"."""
        return text.str.count_matches(rf"(?i)\b(?:{STOP_WORDS[language]})\b")


MORE_WORDS = {
    "en": "a|about|at|can|do|don't|had|he|her|how|i|i'm|if|it's|know|me|my|on|she|there|to|want|was|were|what|when|who|"
    "why|would|your",
    "de": "aber|als|am|aus|bist|dich|dir|es|habe|hast|hat|kein|keine|mich|mir|uns|vor|warum|wenn|wer|wie|wo|zum|zur",
}
"""Further words for Swapped, which compares two languages: some are also words of a third."""


@dataclass(frozen=True)
class Swapped(_LanguageFilter):
    """Removes pairs with exchanged sides: both together have at least ``least`` more common words of the other side's
    language than of their own. It finds 99 % of such pairs among Multi30k's captions, 95 % among Tatoeba's short
    sentences. For text of several sources."""

    def keep(self) -> pl.Expr:
        own, other = self._counts()
        return other < own + self.least

    def evidence(self, pair: pl.DataFrame) -> Evidence:
        own, other = (pair.select(count).item() for count in self._counts())
        return f"{other} common words of the other side's language, {own} of its own", f"{self.least - 1} more"

    def _counts(self) -> tuple[pl.Expr, pl.Expr]:
        """The common words of each side's own language, and those of the other side's."""
        own = self._common("source", self.source) + self._common("target", self.target)
        other = self._common("source", self.target) + self._common("target", self.source)
        return own, other

    @staticmethod
    def _common(side: str, language: str) -> pl.Expr:
        words = "|".join(filter(None, (STOP_WORDS[language], MORE_WORDS.get(language))))
        return pl.col(side).str.count_matches(rf"(?i)\b(?:{words})\b").cast(pl.Int64)
