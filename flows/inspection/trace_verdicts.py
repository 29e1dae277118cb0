"""The verdict of every filter on one pair of the training text, with what it measured."""

from collections.abc import Sequence
from typing import Any

import polars as pl

from infra.store.store import Artifact
from tasks.cleaning.filters import SIDES, Distinct, Filter, Filters, NotIn
from tasks.cleaning.partitions import normalise_sides
from tasks.cleaning.rejections import filter_evidence
from tasks.corpus.catalogue import Corpus


def verdicts(
    clean: Artifact, corpus: Corpus, filters: Filters, row: dict[str, Any], excluded: Sequence[Artifact]
) -> list[dict[str, str]]:
    """``rule``, ``said`` (kept, rejected, not asked), ``measured`` and ``allowed`` for a row that ``clean`` wrote.

    Rules before the one that ``clean`` recorded kept the pair; rules after it were not applied.
    """
    pair = pl.DataFrame({side: [row[side]] for side in SIDES}, schema=dict.fromkeys(SIDES, pl.String))
    found = []
    said = "kept"
    for number, rule in enumerate(filters.rules):
        measured = allowed = ""
        if said != "kept":
            said = "not asked"
        elif rule.name == row.get("filter", ""):
            said = "rejected"
        if said == "rejected" and isinstance(rule, Distinct):
            measured = _first_occurrence(clean, corpus, rule, filters.rules[number + 1 :], pair)
        elif said == "rejected" and isinstance(rule, NotIn):
            measured = _matching_set_line(filters, excluded, pair)
        elif said != "not asked":
            measured, allowed = filter_evidence(rule, pair)
        found.append({"rule": rule.name, "said": said, "measured": measured, "allowed": allowed})
    return found


def _matching_set_line(filters: Filters, excluded: Sequence[Artifact], pair: pl.DataFrame) -> str:
    """The line of an excluded set that equals a side of the pair."""
    for prepared in excluded:
        lines = normalise_sides(pl.read_parquet(prepared.path() / "pairs.parquet"), filters.normalise)
        for side in SIDES:
            found = lines.filter(pl.col(side) == pair[side].item())
            if found.height:
                return f"{side} is that of {found['pair_id'][0]}"
    return ""


def _first_occurrence(
    clean: Artifact, corpus: Corpus, rule: Distinct, later: Sequence[Filter], pair: pl.DataFrame
) -> str:
    """The first pair, in reading order, of those that the earlier rules kept and that ``rule`` holds for equal."""
    (value,) = rule.values()
    same = value == pair.select(value).item()
    kept = pl.scan_parquet(clean.path() / "pairs.parquet").filter(same)
    was_later = pl.col("filter").is_in([each.name for each in later])
    rejected = pl.scan_parquet(clean.path() / "rejected.parquet").filter(same & was_later)
    rows = pl.concat(table.select("corpus", "pair_id") for table in (kept, rejected)).collect().rows()
    parts = [part.name for part in corpus.parts]
    ids = sorted((parts.index(part), int(pair_id.rpartition(":")[2]), pair_id) for part, pair_id in rows)
    return f"repeats {ids[0][2]}" if ids else ""
