"""Compare two systems' hypotheses for one set: the difference in each metric, and whether it may be chance.

Takes the tables that ``score`` writes (pair_id, source, reference, hypothesis, bleu, chrf). Returns the differences
with p-values by sacreBLEU's paired bootstrap (Koehn 2004) and the sentences that differ most, also as HTML.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from infra.errors import BadConfiguration
from model.lazy_import import lazy_import
from tasks.evaluation.html import render
from tasks.evaluation.metrics import ScoreMetric, resample, score_metrics, total
from tasks.evaluation.pictures import Picture

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
else:
    np, pl = lazy_import("numpy"), lazy_import("polars")

SENTENCES_SHOWN = 10
"""Number of sentences listed for each system, of those that it translates better."""
SIGNIFICANCE_LEVEL = 0.05
"""Differences with a p-value below this are reported as significant."""


@dataclass(frozen=True)
class Difference:
    """One metric for both systems. ``p`` is the probability of a difference this large between equal systems."""

    measure: str
    protocol: str
    signature: str
    a: float
    b: float
    p: float


@dataclass(frozen=True)
class Comparison:
    """One set. ``better_a`` and ``better_b`` list the sentences that one system translates better by the most chrF."""

    name: str
    sentences: int
    differences: tuple[Difference, ...]
    better_a: tuple[dict[str, Any], ...]
    better_b: tuple[dict[str, Any], ...]


def compare(name: str, a: pl.DataFrame, b: pl.DataFrame, language: str) -> Comparison:
    """Compare the tables of one set. Raises BadConfiguration if their references differ."""
    if not a.select("pair_id", "reference").equals(b.select("pair_id", "reference")):
        raise BadConfiguration(f"set {name} has different sentences or references in the two systems")
    references = a["reference"].to_list()
    hypotheses = a["hypothesis"].to_list(), b["hypothesis"].to_list()
    both = a.rename({"hypothesis": "hypothesis_a", "chrf": "chrf_a"}).with_columns(
        hypothesis_b=b["hypothesis"], chrf_b=b["chrf"], gain=b["chrf"] - a["chrf"]
    )
    columns = ("pair_id", "source", "reference", "hypothesis_a", "hypothesis_b", "chrf_a", "chrf_b")
    ranked = both.sort("gain", "pair_id").filter(pl.col("gain") != 0)
    worse, better = ranked.filter(pl.col("gain") < 0), ranked.filter(pl.col("gain") > 0).reverse()
    return Comparison(
        name,
        len(references),
        tuple(difference(measure, *hypotheses, references) for measure in score_metrics(language)),
        tuple(worse.head(SENTENCES_SHOWN).select(columns).iter_rows(named=True)),
        tuple(better.head(SENTENCES_SHOWN).select(columns).iter_rows(named=True)),
    )


def difference(measure: ScoreMetric, a: Sequence[str], b: Sequence[str], references: Sequence[str]) -> Difference:
    """Both scores, and the p-value of their difference: 1 for equal scores, else sacreBLEU's."""
    counts_a, counts_b = measure.count(a, references), measure.count(b, references)
    score_a, score_b = total(measure.metric, counts_a), total(measure.metric, counts_b)
    if score_a == score_b:
        # sacreBLEU counts resamples with a larger difference. If all resamples tie too, as for two systems with a BLEU
        # of 0, it would report p = 0.001.
        return Difference(measure.name, measure.protocol, measure.signature, score_a, score_b, 1.0)
    # Both systems are resampled with the same sentences.
    drawn = zip(resample(counts_a), resample(counts_b), strict=True)
    gaps = np.abs([total(measure.metric, row_b[None]) - total(measure.metric, row_a[None]) for row_a, row_b in drawn])
    beyond = int(((gaps - gaps.mean()) > abs(score_b - score_a)).sum())
    p = (beyond + 1) / (len(gaps) + 1)
    return Difference(measure.name, measure.protocol, measure.signature, score_a, score_b, p)


def page(a: str, b: str, comparisons: Sequence[Comparison], picture: Picture | None = None) -> str:
    """The comparison as a self-contained HTML page, with a picture of both trainings."""
    return render("compare.html", a=a, b=b, comparisons=comparisons, sure=SIGNIFICANCE_LEVEL, picture=picture)
