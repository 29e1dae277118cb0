"""Two systems' hypotheses for one set against each other: by how much they differ, and whether that may be chance.

In come the tables that ``score`` left (pair_id, source, reference, hypothesis, bleu, chrf), out go differences by
measure with the p-values of sacreBLEU's paired bootstrap (Koehn 2004), and the sentences that differ most; as HTML too.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from infra.errors import BadConfiguration
from tasks.evaluation.metrics import ScoreMetric, resample, score_metrics, total

SENTENCES_SHOWN = 10
"""Sentences shown of those that one system does better, and of those that the other does."""
SIGNIFICANCE_LEVEL = 0.05
"""A p-value below this is told as a difference that is hardly chance."""


@dataclass(frozen=True)
class Difference:
    """One measure of both systems. ``p`` is the chance of so large a difference between systems that are equal."""

    measure: str
    protocol: str
    signature: str
    a: float
    b: float
    p: float


@dataclass(frozen=True)
class Comparison:
    """One set. ``better_a`` and ``better_b`` are the sentences that one system does better by the most chrF."""

    name: str
    sentences: int
    differences: tuple[Difference, ...]
    better_a: tuple[dict[str, Any], ...]
    better_b: tuple[dict[str, Any], ...]


def compare(name: str, a: pl.DataFrame, b: pl.DataFrame, language: str) -> Comparison:
    """Compare the tables of one set. Raises BadConfiguration where they are not of the same references."""
    same = a.select("pair_id", "reference").equals(b.select("pair_id", "reference"))
    if not same:
        raise BadConfiguration(f"set {name} of one system has other sentences or references than that of the other")
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
    """Both scores, and the p-value of their difference: 1 where they are equal, else sacreBLEU's."""
    counts_a, counts_b = measure.count(a, references), measure.count(b, references)
    score_a, score_b = total(measure.metric, counts_a), total(measure.metric, counts_b)
    if score_a == score_b:
        # Every difference is at least zero. sacreBLEU's count of larger ones would come to p = 0.001 where all
        # resamples tie as well, as two systems with a BLEU of 0 do.
        return Difference(measure.name, measure.protocol, measure.signature, score_a, score_b, 1.0)
    # The same sentences are drawn for both.
    drawn = zip(resample(counts_a), resample(counts_b), strict=True)
    gaps = np.abs([total(measure.metric, row_b[None]) - total(measure.metric, row_a[None]) for row_a, row_b in drawn])
    beyond = int(((gaps - gaps.mean()) > abs(score_b - score_a)).sum())
    p = (beyond + 1) / (len(gaps) + 1)
    return Difference(measure.name, measure.protocol, measure.signature, score_a, score_b, p)


def page(a: str, b: str, comparisons: Sequence[Comparison]) -> str:
    """The comparison as one HTML page that needs nothing else."""
    from jinja2 import Environment, StrictUndefined

    template = Path(__file__).with_name("compare.html").read_text()
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(template).render(a=a, b=b, comparisons=comparisons, sure=SIGNIFICANCE_LEVEL)
