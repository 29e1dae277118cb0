"""The cleaning stage and its peers, plain polars and pandas, over the two files of benchmarks/text.py.

Each keeps pairs of 1 to 100 words per side whose longer side has at most 2.5 times the words of the shorter, keeps the
first pair of each 64-bit hash, and writes Parquet.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from model.config.normalise import Normalise
from tasks.cleaning.filters import (
    Distinct,
    Empty,
    Filters,
    Identical,
    InvalidUnicode,
    Length,
    LengthRatio,
    NoLetters,
    OverlongWord,
    Script,
)

MAX_WORDS = 100
MAX_RATIO = 2.5
SAME = Filters(
    (Empty(), Length(1, MAX_WORDS), LengthRatio(MAX_RATIO), Distinct()),
    normalise=Normalise(nfc=False, control=False, white_space=False),
)
"""The filters of the peers."""
CAREFUL = Filters(
    (
        Empty(),
        InvalidUnicode(),
        NoLetters(),
        OverlongWord(),
        Length(1, MAX_WORDS),
        Identical(),
        Script(),
        LengthRatio(MAX_RATIO),
        Distinct(),
    )
)
"""The filters of a real run, without language identification: made-up words have no language."""


def own(folder: Path, filters: Filters, into: str) -> dict[str, Any]:
    from infra.store.store import Artifact
    from tasks.corpus.catalogue import Corpus, File, Part, Text
    from tasks.stages.clean import clean

    files = [File(f"text.{side}", sha256="0" * 64) for side in ("source", "target")]
    corpus = Corpus("made-up", "en", "de", (Part("made-up", *(Text(file) for file in files)),))
    archives = {file.path: Artifact("download", file.path, folder) for file in files}
    out = folder / into
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    facts = clean.body(out, corpus, archives, (), filters)
    return {"kept": facts["pairs"], "rejected_by": facts["rejected_by"]}


def polars(folder: Path) -> dict[str, Any]:
    import polars as pl

    sides = [
        pl.scan_csv(
            folder / f"text.{side}",
            has_header=False,
            separator="\x01",
            quote_char=None,
            schema={side: pl.String},
            empty_string_is_null=False,
        )
        for side in ("source", "target")
    ]
    words = [pl.col(side).str.count_matches(r"\S+").alias(f"{side}_words") for side in ("source", "target")]
    counts = [pl.col(f"{side}_words") for side in ("source", "target")]
    fits = pl.all_horizontal(count.is_between(1, MAX_WORDS) for count in counts)
    ratio = pl.max_horizontal(counts) <= MAX_RATIO * pl.min_horizontal(counts)
    value = pl.struct("source", "target").hash().alias("value")
    kept = pl.concat(sides, how="horizontal").with_columns(words).filter(fits & ratio).with_columns(value)
    path = folder / "polars.parquet"
    kept.unique("value", keep="first").select("source", "target").sink_parquet(path, engine="streaming")
    return {"kept": pl.scan_parquet(path).select(pl.len()).collect().item()}


def pandas(folder: Path) -> dict[str, Any]:
    import pandas as pd

    read = {
        side: (folder / f"text.{side}").read_text(encoding="utf-8").split("\n")[:-1] for side in ("source", "target")
    }
    frame = pd.DataFrame(read)
    counts = pd.DataFrame({side: frame[side].str.count(r"\S+") for side in read})
    least = counts.min(axis=1)
    most = counts.max(axis=1)
    frame = frame[(least >= 1) & (most <= MAX_WORDS) & (most <= MAX_RATIO * least)]
    value = pd.util.hash_pandas_object(frame, index=False)
    frame = frame[~value.duplicated()]
    frame.to_parquet(folder / "pandas.parquet", compression="zstd")
    return {"kept": len(frame)}


CLEANERS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "clean": lambda folder: own(folder, CAREFUL, "clean"),
    "same": lambda folder: own(folder, SAME, "same"),
    "polars": polars,
    "pandas": pandas,
}
