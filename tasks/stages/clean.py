"""Raw text to training pairs: read, number, normalise, filter, shuffle.

In come archives and the sets whose lines must not be learnt, out go ``pairs.parquet`` and ``rejected.parquet``. Pieces
and models are not known here. Memory holds a few frames or a bucket of pairs and a few bytes for each pair, however
large the corpus; the result is the same for any number of parts and workers:

1. frames of pairs are read here, and normalised and judged by every rule that looks at one pair, by the site's workers;
2. undecided pairs go to the bucket of their place in the shuffled order, on disk; the values of rules that look across
   pairs to the part of their hash;
3. these rules are decided one after the other, part by part;
4. each bucket is sorted, and written here.
"""

import pickle
import shutil
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet

from infra.errors import BadConfiguration, BadData
from infra.processes.workers import Workers
from infra.store.local import Artifact
from tasks import corpus as reading
from tasks.cleaning.filters import SIDES, Filters, Normalise
from tasks.cleaning.partitions import KEPT, REJECTED, Partitions, normalise_sides, read_batch, write_batches
from tasks.corpus.catalogue import Corpus, Part
from tasks.engine.stage import Facts, progress, site, stage

BUCKET_BYTES = 64 << 20
"""Bytes of compressed source text for one bucket; it decides the memory, and where Parquet's row groups end."""
PART_BYTES = 256 << 20
"""Bytes of compressed source text for one part by hash; it decides the memory alone."""


def _excluded(exclude: tuple[Artifact, ...], normalise: Normalise) -> dict[str, pl.Series]:
    """The lines of the excluded sets by side, normalised as the corpus is."""
    frames = [pl.read_parquet(each.path() / "pairs.parquet", columns=list(SIDES)) for each in exclude]
    if not frames:
        return {side: pl.Series(side, [], dtype=pl.String) for side in SIDES}
    lines = normalise_sides(pl.concat(frames), normalise)
    return {side: lines[side].unique() for side in SIDES}


def _read(part: Part, archives: Mapping[str, Artifact]) -> Iterator[pl.DataFrame]:
    source, target = (archives[text.file.path].path() / text.file.name for text in (part.source, part.target))
    return reading.read((part.source, part.target), (source, target))


def _check_picklable(filters: Filters, workers: Workers) -> None:
    """BadConfiguration naming a rule that other processes cannot be handed: a class of a file that is no module."""
    # A Dask cluster is sent the code of such a class as well.
    for rule in filters.rules if isinstance(workers.executor, ProcessPoolExecutor) else ():
        try:
            pickle.dumps(rule)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise BadConfiguration(
                f"filters.rules: {type(rule).__qualname__} cannot be sent to other processes ({error}); define the "
                f"class in a file beside the run's and import it from there, or set REPRO_WORKERS=1"
            ) from error


def _frames(
    corpus: Corpus, archives: Mapping[str, Artifact], parts: Partitions, apart: bool
) -> Iterator[tuple[Any, ...]]:
    """What ``Parts.judge`` wants to know of each frame, in reading order."""
    number = read = 0
    for part in corpus.parts:
        first = 0
        for frame in _read(part, archives):
            if apart:
                write_batches(parts.file(number, "raw"), frame)
            yield number, parts.file(number, "raw") if apart else frame, part.name, first, read
            number, first, read = number + 1, first + frame.height, read + frame.height


def _apply_cross_pair_rules(verdict: np.ndarray, frames: int, parts: Partitions, workers: Workers) -> np.ndarray:
    """The verdicts with those of the rules that look across pairs; ``verdict.npy`` is left with them."""
    np.save(parts.folder / "verdict.npy", verdict)
    for at in sorted(parts.cross_pair_rules):
        found = list(
            workers.map(parts.apply_cross_pair_rule, ((at, frames, part) for part in range(parts.hash_partitions)))
        )
        for rejected in found:
            verdict[rejected] = at
        np.save(parts.folder / "verdict.npy", verdict)
    return verdict


def _shuffled_buckets(frames: int, parts: Partitions, workers: Workers) -> Iterator[tuple[pl.DataFrame, pl.DataFrame]]:
    """For each bucket the pairs that stay and those that do not."""
    calls = ((bucket, frames) for bucket in range(parts.buckets))
    if not workers.separate_processes:
        yield from workers.map(parts.sort_bucket, calls)
        return
    for paths in workers.map(parts.sort_bucket_to_files, calls):
        kept, rejected = (read_batch([path]) for path in paths)
        yield kept, rejected
        for path in paths:
            path.unlink()


class _ParquetWriter:
    """A zstd Parquet file of string columns, written frame by frame; there even if no frame comes."""

    def __init__(self, path: Path, columns: tuple[str, ...], stack: ExitStack) -> None:
        self._columns = list(columns)
        self._schema = pa.schema([(name, pa.large_string()) for name in columns])
        self._writer = stack.enter_context(pa.parquet.ParquetWriter(path, self._schema, compression="zstd"))

    def write(self, frame: pl.DataFrame) -> None:
        if frame.height:
            self._writer.write_table(frame.select(self._columns).to_arrow().cast(self._schema))


def clean_corpus(
    out: Path, corpus: Corpus, archives: Mapping[str, Artifact], exclude: tuple[Artifact, ...], filters: Filters
) -> Facts:
    """Write ``pairs.parquet`` and ``rejected.parquet``; gives the counts.

    Raises BadData when a part's sides differ in length, or naming the rule that took most when nothing is left.
    """
    names = [rule.name for rule in filters.rules]
    texts = {text.file for part in corpus.parts for text in (part.source, part.target)}
    total = sum((archives[file.path].path() / file.name).stat().st_size for file in texts)
    folder = (out / "parts").absolute()
    folder.mkdir()
    excluded = _excluded(exclude, filters.normalise)
    parts = Partitions(folder, filters, excluded, 1 + total // BUCKET_BYTES, 1 + total // PART_BYTES)
    with ExitStack() as stack:
        workers = stack.enter_context(site().executor())
        _check_picklable(filters, workers)
        kept = _ParquetWriter(out / "pairs.parquet", KEPT, stack)
        rejected = _ParquetWriter(out / "rejected.parquet", REJECTED, stack)
        judged: list[np.ndarray] = []
        read = 0
        for number, verdict in enumerate(
            workers.map(parts.apply_filters, _frames(corpus, archives, parts, workers.separate_processes))
        ):
            judged.append(verdict)
            rejected.write(read_batch([parts.file(number, "rejected")]))
            for done in ("raw", "rejected"):
                parts.file(number, done).unlink(missing_ok=True)
            read += len(verdict)
            progress(read, read, f"{read:,} pairs read")
        if not read:
            raise BadData(f"corpus {corpus.name} holds no line")
        final = _apply_cross_pair_rules(np.concatenate(judged), len(judged), parts, workers)
        counts = dict(zip(names, np.bincount(final, minlength=len(names) + 1)[:-1].tolist(), strict=True))
        left = read - sum(counts.values())
        if not left:
            most = max(counts, key=lambda name: counts[name])
            raise BadData(
                f"No pair of {read} is left in corpus {corpus.name}: {most} removed {counts[most]}. "
                f"All: {', '.join(f'{name} {count}' for name, count in counts.items())}"
            )
        written = 0
        for stays, leaves in _shuffled_buckets(len(judged), parts, workers):
            kept.write(stays)
            rejected.write(leaves)
            written += stays.height + leaves.height
            progress(written, read, f"{written:,} pairs shuffled")
    shutil.rmtree(folder)
    return {"read": read, "pairs": left, "rejected": read - left, "rejected_by": counts}


@stage(version=1)
def clean(
    out: Path, corpus: Corpus, archives: Mapping[str, Artifact], exclude: tuple[Artifact, ...], filters: Filters
) -> Facts:
    """Training text. ``archives`` by the path of their file.

    out/
      pairs.parquet       pair_id, corpus, source, target; shuffled
      rejected.parquet    the same and filter: the first rule that rejected the pair; text normalised
    """
    return clean_corpus(out, corpus, archives, exclude, filters)
