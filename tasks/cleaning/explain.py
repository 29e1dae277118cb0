"""What the rules of a run rejected: how much, and examples with the numbers behind them.

In come the folder that ``clean`` made and its rules; out goes an ``RejectionReport`` for each rule, in their order.
Nothing is decided or made here.
"""

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from tasks.cleaning.filter_evidence import filter_evidence
from tasks.cleaning.filters import Filter, Filters


@dataclass(frozen=True)
class RejectedPair:
    """A rejected pair, its text normalised; what the rule found and what it allows, empty where it measures nothing."""

    pair_id: str
    source: str
    target: str
    found: str
    allowed: str


@dataclass(frozen=True)
class RejectionReport:
    """A rule: what it is for, how many pairs it rejected of all that were read, and some of them."""

    rule: str
    about: str
    rejected: int
    share: float
    samples: tuple[RejectedPair, ...]


def explain_rejections(folder: Path, filters: Filters, samples: int, seed: int) -> tuple[RejectionReport, ...]:
    """All rules; ``samples`` pairs of each, the same for the same seed. A pair counts for the first rule that rejects
    it."""
    rejected = pl.scan_parquet(folder / "rejected.parquet")
    counts = dict(rejected.group_by("filter").len().collect().iter_rows())
    read = sum(counts.values()) + pl.scan_parquet(folder / "pairs.parquet").select(pl.len()).collect().item()
    found = []
    for rule in filters.rules:
        # By a number that is as good as drawn: only so many pairs are ever held.
        drawn = (
            rejected.filter(pl.col("filter") == rule.name).sort(pl.col("pair_id").hash(seed), "pair_id").head(samples)
        )
        pairs = tuple(_sample(rule, row) for row in drawn.collect().iter_slices(1))
        count = counts.get(rule.name, 0)
        about = " ".join((type(rule).__doc__ or "").split())
        found.append(RejectionReport(rule.name, about, count, count / max(read, 1), pairs))
    return tuple(found)


def _sample(rule: Filter, pair: pl.DataFrame) -> RejectedPair:
    found, allowed = filter_evidence(rule, pair.select("source", "target"))
    pair_id, source, target = pair.select("pair_id", "source", "target").row(0)
    return RejectedPair(pair_id, source, target, found, allowed)
