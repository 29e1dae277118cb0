"""Reports what each rule of a run rejected: counts, and sample pairs with the measured and the allowed value."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from tasks.cleaning.filters import Evidence, Filter, Filters
from tasks.cleaning.partitions import REFUSED

ROWS_LOOKED_AT = 20_000
"""Rows that ``first_rejected`` reads, so that a web corpus takes no longer than a small one."""


def filter_evidence(rule: Filter, pair: pl.DataFrame) -> Evidence:
    """The rule's evidence for the only row of ``pair``; empty for a user's rule without a method ``evidence``."""
    found: Evidence = rule.evidence(pair) if hasattr(rule, "evidence") else ("", "")
    return found


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
    """A rule's description, the number and share of all pairs that it rejected, and a sample of these pairs."""

    rule: str
    about: str
    rejected: int
    share: float
    samples: tuple[RejectedPair, ...]


def explain_rejections(folder: Path, filters: Filters, samples: int, seed: int) -> tuple[RejectionReport, ...]:
    """One report per rule with up to ``samples`` rejected pairs, the same for the same seed.

    A pair counts for the first rule that rejects it.
    """
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
        about = " ".join((type(rule).__doc__ or "").replace("``", "`").split())
        found.append(RejectionReport(rule.name, about, count, count / max(read, 1), pairs))
    return tuple(found)


def refusal(folder: Path) -> dict[str, Any]:
    """``read`` and ``why`` if ``clean`` refused the text; empty if it did not."""
    file = folder / REFUSED
    return dict(json.loads(file.read_text())) if file.is_file() else {}


def first_rejected(file: Path, samples: int) -> dict[str, list[dict[str, str]]]:
    """Up to ``samples`` pairs of each filter from the beginning of ``rejected.parquet``, each with ``pair_id``."""
    begin = pl.read_parquet(file, n_rows=ROWS_LOOKED_AT, columns=["pair_id", "source", "target", "filter"])
    groups = begin.partition_by("filter", as_dict=True, include_key=False, maintain_order=True)
    return {name: rows.head(samples).to_dicts() for (name,), rows in groups.items()}


def _sample(rule: Filter, pair: pl.DataFrame) -> RejectedPair:
    found, allowed = filter_evidence(rule, pair.select("source", "target"))
    pair_id, source, target = pair.select("pair_id", "source", "target").row(0)
    return RejectedPair(pair_id, source, target, found, allowed)
