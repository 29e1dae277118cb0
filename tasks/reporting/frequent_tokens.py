"""Counts how often each token occurs in the training text, with readable names."""

from __future__ import annotations

from typing import Any

from model.data.bpe import TokenizerPair
from model.data.shards import Shards
from tasks.lazy_libraries import np, pl

TOKENS_FILE = "tokens.csv"
TOKENS_SHOWN = 20
"""Tokens of each side on the page; the file has all tokens."""


def token_counts(shards: Shards, vocabulary: TokenizerPair) -> pl.DataFrame:
    """The tokens of each side, the most frequent first: ``side``, ``id``, ``token``, ``count``, ``share`` of the side.

    ``token`` is text: ``▁`` stands for a space, ``\\xc3`` for a byte that alone is no character. Ends of sentences and
    padding are not in shards, so they are not counted. Reads all pieces once.
    """
    sides = []
    for side, names in (("source", vocabulary.source_pieces), ("target", vocabulary.target_pieces)):
        counts = shards.counts(side)
        ids = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
        found = counts[ids]
        columns = {"id": ids, "token": names(ids.tolist()), "count": found, "share": found / max(found.sum(), 1)}
        sides.append(pl.DataFrame(columns).select(pl.lit(side).alias("side"), pl.all()))
    return pl.concat(sides)


def most_frequent(tokens: pl.DataFrame) -> dict[str, list[dict[str, Any]]]:
    """The first ``TOKENS_SHOWN`` rows of each side of ``token_counts``."""
    sides = tokens.partition_by("side", as_dict=True, maintain_order=True)
    return {f"{side}": rows.head(TOKENS_SHOWN).to_dicts() for (side,), rows in sides.items()}
