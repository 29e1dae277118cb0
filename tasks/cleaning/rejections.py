"""What each rule of a run rejected: counts, and sample pairs with what the rule measured and what it allows.

This module explains verdicts; ``filters`` decides them. A rule without a function here, such as one of
``web_filters``, has no numbers to show: its description and the text say it all.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import singledispatch
from pathlib import Path
from typing import Any

import polars as pl

from tasks.cleaning.filters import (
    SIDES,
    STOP_WORDS,
    Empty,
    Filter,
    Filters,
    InvalidUnicode,
    Language,
    Length,
    LengthRatio,
    NoLetters,
    OverlongWord,
    Script,
    word_count,
)
from tasks.cleaning.partitions import REFUSED

Evidence = tuple[str, str]
"""The measured value and the allowed one, as text."""
ROWS_LOOKED_AT = 20_000
"""Where the first pairs are enough, so that a web corpus costs no more than a small one."""


@singledispatch
def filter_evidence(rule: object, pair: pl.DataFrame) -> Evidence:  # noqa: ARG001
    """Describe the one row of ``pair`` (``source``, ``target``); two empty texts for a rule that measures nothing."""
    return "", ""


@filter_evidence.register
def _(rule: Empty, pair: pl.DataFrame) -> Evidence:  # noqa: ARG001
    return f"{_both(pair, lambda side: side.str.len_chars())} characters", "at least 1 on each side"


@filter_evidence.register
def _(rule: InvalidUnicode, pair: pl.DataFrame) -> Evidence:
    first = [pair.select(pl.col(side).str.extract(f"({rule.PATTERN})")).item() for side in SIDES]
    codes = [" ".join(f"U+{ord(c):04X}" for c in text or "") for text in first]
    found = [f"{code} in the {side}" for side, code in zip(SIDES, codes, strict=True) if code]
    return ", ".join(found), "none" if found else ""


@filter_evidence.register
def _(rule: NoLetters, pair: pl.DataFrame) -> Evidence:  # noqa: ARG001
    letters = _both(pair, lambda side: side.str.count_matches(r"\p{L}"))
    return f"{letters} letters", "at least 1 on each side"


@filter_evidence.register
def _(rule: Length, pair: pl.DataFrame) -> Evidence:
    counts = " and ".join(f"{pair.select(word_count(side)).item():,}" for side in SIDES)
    found = f"{counts} words, {_both(pair, lambda side: side.str.len_chars())} characters"
    return found, f"{rule.min} to {rule.max} words, at most {rule.max_chars:,} characters"


@filter_evidence.register
def _(rule: LengthRatio, pair: pl.DataFrame) -> Evidence:
    source, target = (max(pair.select(word_count(side)).item(), 1) for side in SIDES)
    return f"ratio {max(source, target) / min(source, target):.2f}", f"at most {rule.max:g}"


@filter_evidence.register
def _(rule: OverlongWord, pair: pl.DataFrame) -> Evidence:
    longest = [
        pl.col(side).str.extract_all(r"\S+").list.eval(pl.element().str.len_chars()).list.max() for side in SIDES
    ]
    found = " and ".join(f"{pair.select(each).item() or 0:,}" for each in longest)
    return f"longest words {found}", f"at most {rule.max} characters"


@filter_evidence.register
def _(rule: Script, pair: pl.DataFrame) -> Evidence:
    shares = []
    for side in SIDES:
        other = pl.col(side).str.count_matches(rf"[\p{{L}}--\p{{{getattr(rule, side)}}}]")
        shares.append(pair.select(other / pl.max_horizontal(pl.col(side).str.len_chars(), 1)).item())
    return f"{shares[0]:.2f} and {shares[1]:.2f} of another script", f"at most {rule.max_other:g}"


@filter_evidence.register
def _(rule: Language, pair: pl.DataFrame) -> Evidence:
    found = []
    for side in SIDES:
        own = getattr(rule, side)
        counts = {language: pair.select(rule.common(pl.col(side), language)).item() for language in STOP_WORDS}
        other = max((language for language in STOP_WORDS if language != own), key=lambda language: counts[language])
        found.append(f"{counts[own]} {own} and {counts[other]} {other}")
    return f"common words {', '.join(found)}", f"one of its own, or under {rule.least} of another"


def _both(pair: pl.DataFrame, count: Callable[[pl.Expr], pl.Expr]) -> str:
    return " and ".join(f"{pair.select(count(pl.col(side))).item():,}" for side in SIDES)


@dataclass(frozen=True)
class RejectedPair:
    """A rejected pair, normalised, with what the rule found and what it allows (empty if it measures nothing)."""

    pair_id: str
    source: str
    target: str
    found: str
    allowed: str


@dataclass(frozen=True)
class RejectionReport:
    """A rule with its description, how many and what share of all pairs it rejected, and a sample of them."""

    rule: str
    about: str
    rejected: int
    share: float
    samples: tuple[RejectedPair, ...]


def explain_rejections(folder: Path, filters: Filters, samples: int, seed: int) -> tuple[RejectionReport, ...]:
    """One report per rule with up to ``samples`` pairs, the same for the same seed. A pair counts for the first rule
    that rejects it."""
    rejected = pl.scan_parquet(folder / "rejected.parquet")
    counts = dict(rejected.group_by("filter").len().collect().iter_rows())
    refused = refusal(folder)
    kept = 0 if refused else pl.scan_parquet(folder / "pairs.parquet").select(pl.len()).collect().item()
    read = refused["read"] if refused else sum(counts.values()) + kept
    found = []
    for rule in filters.rules:
        # Sorting by a hash samples at random, and polars keeps only ``samples`` pairs in memory.
        of_rule = rejected.filter(pl.col("filter") == rule.name)
        sample = of_rule.sort(pl.col("pair_id").hash(seed), "pair_id").head(samples).collect()
        pairs = tuple(_sample(rule, row) for row in sample.iter_slices(1))
        count = counts.get(rule.name, 0)
        about = " ".join((type(rule).__doc__ or "").split())
        found.append(RejectionReport(rule.name, about, count, count / max(read, 1), pairs))
    return tuple(found)


def refusal(folder: Path) -> dict[str, Any]:
    """``read`` and ``why`` where ``clean`` refused the text; empty where it did not."""
    file = folder / REFUSED
    return dict(json.loads(file.read_text())) if file.is_file() else {}


def first_rejected(file: Path, samples: int) -> dict[str, list[dict[str, str]]]:
    """Up to ``samples`` pairs of each filter from the beginning of ``rejected.parquet``, each with ``pair_id``."""
    begin = pl.read_parquet(file, n_rows=ROWS_LOOKED_AT, columns=["pair_id", "source", "target", "filter"])
    rows = begin.group_by("filter", maintain_order=True).head(samples).to_dicts()
    found: dict[str, list[dict[str, str]]] = {}
    for row in rows:
        found.setdefault(row.pop("filter"), []).append(row)
    return found


def _sample(rule: Filter, pair: pl.DataFrame) -> RejectedPair:
    found, allowed = filter_evidence(rule, pair.select("source", "target"))
    pair_id, source, target = pair.select("pair_id", "source", "target").row(0)
    return RejectedPair(pair_id, source, target, found, allowed)
