"""Compares two systems on one set by each metric, with two-sided p-values by paired bootstrap (Koehn 2004)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from infra.errors import BadConfiguration
from tasks.evaluation.translation_metrics import ScoreMetric, measured, paired_p_value, rounded
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


def compare(name: str, a: pl.DataFrame, b: pl.DataFrame, metrics: Iterable[ScoreMetric]) -> list[Difference]:
    """Compare the tables of one set by each metric; scores are rounded as in score cards.

    Raises BadConfiguration if their references differ.
    """
    if not a["reference"].equals(b["reference"]):
        raise BadConfiguration(f"set {name} has different references in the two systems")
    references = a["reference"].to_list()
    written = [table["hypothesis"].to_list() for table in (a, b)]
    found = []
    for each in metrics:
        first, second = (measured(each.metric, each.count(lines, references)) for lines in written)
        gap = second - first
        scores = rounded({"a": first.score, "b": second.score})
        p = paired_p_value(gap.score, gap.resampled, len(references))
        found.append(Difference(each.name, each.protocol, each.signature, **scores, p=p))
    return found
