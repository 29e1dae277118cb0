"""Converts dev and test sets to Parquet exactly as published: no filter, no normalisation, same order.

A set with noise (``test+caps``) is the published set, changed by the rules in its name (``tasks.corpus.noise``).
"""

from __future__ import annotations

from pathlib import Path

from infra.errors import BadData
from infra.store.store import Artifact
from tasks.corpus.catalogue import EvaluationSet
from tasks.corpus.noise import noised
from tasks.corpus.reading import read_pairs
from tasks.engine.stage import Facts, stage
from tasks.lazy_libraries import pl


@stage(version=1)
def prepare_sets(out: Path, evaluation: EvaluationSet, source: Artifact, target: Artifact) -> Facts:
    """Write one dev or test set as ``pairs.parquet``: ``pair_id``, ``source``, ``target``.

    A ``pair_id`` is ``newstest2014:17``. Raises BadData when the set is empty, its sides differ in their number of
    lines, or a line is not UTF-8: a score on such text would be wrong.
    """
    texts = (evaluation.source, evaluation.target)
    paths = (source.path() / texts[0].file.name, target.path() / texts[1].file.name)
    frames = list(read_pairs(texts, paths))
    if not frames:
        raise BadData(f"{evaluation.name} holds no line ({paths[0].name}, {paths[1].name})")
    pairs = pl.concat(frames)
    for side, path in zip(("source", "target"), paths, strict=True):
        broken = pairs.select(pl.arg_where(pl.col(side).str.contains("\ufffd", literal=True))).to_series()
        if broken.len():
            raise BadData(
                f"{evaluation.name}: {path.name} is not UTF-8 in {broken.len()} lines, first in line {broken[0] + 1}; "
                "convert it, for example by iconv -f latin1 -t utf-8, and give its new checksum"
            )
    pair_id = pl.format("{}:{}", pl.lit(evaluation.name), pl.int_range(pl.len()))
    pairs = pairs.select(pair_id.alias("pair_id"), "source", "target")
    if evaluation.noise:
        names = (f"{evaluation.clean_name}:{number}" for number in range(pairs.height))
        lines = zip(names, pairs["source"], pairs["target"], strict=True)
        changed = [noised(evaluation.noise, evaluation.noise_seed, *line) for line in lines]
        pairs = pairs.select("pair_id").hstack(pl.DataFrame(changed, schema=["source", "target"], orient="row"))
    pairs.write_parquet(out / "pairs.parquet", compression="zstd")
    return {"pairs": pairs.height}
