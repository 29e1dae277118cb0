"""Compares two systems on one set by each metric, with two-sided p-values by paired bootstrap (Koehn 2004)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from infra.errors import BadConfiguration
from tasks.evaluation.translation_metrics import ScoreMetric, measured, paired_p_value, rounded, score_metrics
from tasks.lazy_libraries import pl


@dataclass(frozen=True)
class Difference:
    """One metric for both systems. ``p``: the probability that equal systems differ as much, in either direction."""

    measure: str
    protocol: str
    signature: str
    a: float
    b: float
    p: float


def compare(name: str, a: pl.DataFrame, b: pl.DataFrame, language: str) -> list[Difference]:
    """Compare the tables of one set by every metric. Raises BadConfiguration if their references differ."""
    same_sentences(name, a, b)
    lines = [column.to_list() for column in (a["hypothesis"], b["hypothesis"], a["reference"])]
    return [difference(measure, *lines) for measure in score_metrics(language)]


def same_sentences(name: str, a: pl.DataFrame, b: pl.DataFrame) -> None:
    """Raise BadConfiguration unless both tables have the same sentences and references."""
    if not a.select("pair_id", "reference").equals(b.select("pair_id", "reference")):
        raise BadConfiguration(f"set {name} has different sentences or references in the two systems")


def difference(measure: ScoreMetric, a: Sequence[str], b: Sequence[str], references: Sequence[str]) -> Difference:
    """Both scores, rounded as in score cards, and the p-value of their difference."""
    first, second = (measured(measure.metric, measure.count(written, references)) for written in (a, b))
    gap = second - first
    p = paired_p_value(gap.score, gap.resampled)
    scores = rounded({"a": first.score, "b": second.score})
    return Difference(measure.name, measure.protocol, measure.signature, **scores, p=p)
