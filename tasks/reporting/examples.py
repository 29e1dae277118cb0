"""Example sentences for the page: good, bad and random translations, and a pair that each filter rejected."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

from model.metric_names import CHRF
from tasks.lazy_libraries import pl

EXAMPLES = 5
"""Translations of each kind."""
SEED = 1


def translation_examples(sentences: pl.DataFrame) -> dict[str, list[dict[str, Any]]]:
    """The best and the worst translations by sentence chrF (among equal scores the longer), and a random sample."""
    ranked = sentences.with_columns(words=pl.col("reference").str.count_matches(r"\S+")).sort(
        CHRF, "words", "pair_id", descending=[True, True, False]
    )
    chosen = {
        "best": ranked.head(EXAMPLES),
        "worst": ranked.sort(CHRF, "words", "pair_id", descending=[False, True, False]).head(EXAMPLES),
        "random": sentences.sample(min(EXAMPLES, len(sentences)), seed=SEED, shuffle=True),
    }
    return {
        kind: [
            {**row, "words": mark_matches(row["hypothesis"], row["reference"])} for row in table.iter_rows(named=True)
        ]
        for kind, table in chosen.items()
    }


def mark_matches(hypothesis: str, reference: str) -> list[tuple[str, bool]]:
    """Split the hypothesis into runs of words, each with whether the reference has these words in this order."""
    words = hypothesis.split()
    matcher = difflib.SequenceMatcher(None, words, reference.split(), autojunk=False)
    return [
        (" ".join(words[start:end]), tag == "equal") for tag, start, end, _, _ in matcher.get_opcodes() if start < end
    ]


def rejected_examples(rejected: Path) -> list[dict[str, Any]]:
    """The first pair that each filter removed."""
    table = pl.scan_parquet(rejected)
    filters = table.select("filter").unique().collect(engine="streaming")["filter"].sort()
    return [row for name in filters for row in table.filter(pl.col("filter") == name).head(1).collect().to_dicts()]
