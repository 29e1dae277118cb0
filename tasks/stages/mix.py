"""Adds pairs whose source is a translation of their target (back-translation) to the cleaned pairs.

    pairs.parquet    pair_id, corpus, source, target: the cleaned pairs in their order, then the synthetic ones

The ``pair_id`` of a synthetic pair is that of its monolingual line after ``bt-``: ``bt-news:17``, corpus ``bt-news``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from infra.errors import BadData
from infra.store.store import Artifact
from tasks.cleaning.partitions import KEPT
from tasks.engine.stage import Facts, progress, stage
from tasks.lazy_libraries import pa, pl, pq

PREFIX = "bt-"
"""The prefix of the corpus and the ``pair_id`` of a synthetic pair."""
ROWS = 200_000
"""Pairs that are held in memory."""


def synthetic_pairs(block: pl.DataFrame, tag: str) -> pl.DataFrame:
    """The pairs of a block of ``translate_text``: the source is the tag and the translation, the target is the line."""
    found = block.filter(pl.col("hypotheses").list.len() > 0)
    pair_id = pl.lit(PREFIX) + pl.col("pair_id")
    return found.select(
        pair_id.alias("pair_id"),
        pair_id.str.replace(":[0-9]+$", "").alias("corpus"),
        source=pl.lit(f"{tag} " if tag else "") + pl.col("hypotheses").list.first(),
        target=pl.col("source"),
    )


def _tables(pairs: Path, blocks: list[Path], tag: str) -> Iterator[pa.Table]:
    with pq.ParquetFile(pairs) as file:
        for batch in file.iter_batches(ROWS, columns=list(KEPT)):
            yield pa.Table.from_batches([batch])
    for path in blocks:
        yield synthetic_pairs(pl.read_parquet(path), tag).to_arrow()


@stage(version=1)
def mix(out: Path, pairs: Artifact, translated: Artifact, tag: str) -> Facts:
    """Write the cleaned ``pairs`` and a pair for each line of ``translated`` that has a translation.

    ``tag`` precedes synthetic sources only; empty for none. Raises BadData if no line has a translation.
    """
    schema = pa.schema([(name, pa.large_string()) for name in KEPT])
    clean = pairs.path() / "pairs.parquet"
    blocks = sorted(translated.path().glob("*.parquet"))
    read = pq.read_metadata(clean).num_rows
    lines = translated.facts["lines"]
    written = 0
    with pq.ParquetWriter(out / "pairs.parquet", schema, compression="zstd") as writer:
        for table in _tables(clean, blocks, tag):
            writer.write_table(table.select(KEPT).cast(schema))
            written += table.num_rows
            progress(written, read + lines, "pairs")
    if written == read:
        raise BadData(f"none of {lines} monolingual lines has a translation; train the reverse model for longer")
    return {"pairs": written, "synthetic": written - read, "untranslated": read + lines - written}
