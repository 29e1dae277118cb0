"""Turns raw corpus files into training pairs: reads, numbers, normalises, filters, shuffles.

    pairs.parquet       pair_id, corpus, source, target; shuffled
    rejected.parquet    the same and ``filter``, the first rule that rejected the pair; text normalised
    refused.json        only if the text is refused: the number of pairs read, and the reason

The result is the same for any number of frames, partitions and workers; memory holds a few frames or one bucket:
read frames and apply the per-pair rules; write undecided pairs to disk by shuffle bucket, and the values of cross-pair
rules by hash; apply the cross-pair rules in order, one hash partition at a time; sort and write bucket by bucket.
"""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from math import ceil
from pathlib import Path
from typing import Any

from infra.errors import BadConfiguration, BadData
from infra.processes.workers import Workers
from infra.store.store import Artifact
from model.config.normalise import Normalise
from tasks.cleaning.filters import SIDES, Distinct, Filters, NotIn
from tasks.cleaning.partitions import KEPT, REFUSED, REJECTED, Partitions, normalise_sides, read_batch, write_batches
from tasks.corpus.catalogue import Corpus, files
from tasks.corpus.reading import read_pairs
from tasks.engine.stage import Facts, progress, site, stage
from tasks.lazy_libraries import np, pa, pl, pq

BUCKET_BYTES = 32 << 20
"""Bytes of compressed source text per shuffle bucket: bounds memory, and sets where Parquet's row groups end."""
PART_BYTES = 256 << 20
"""Bytes of compressed source text per hash partition: bounds memory only."""

DISTINCT = ("pair_id", *SIDES)
"""Columns whose values hardly repeat: a dictionary of them costs time and saves no space."""

FEWEST_JUDGED = 1_000
"""``filters.max_rejected`` is checked from this number of pairs on: fewer pairs are no sample."""


class _ParquetWriter:
    """A zstd Parquet file of string columns, written frame by frame; valid even without any frame."""

    def __init__(self, path: Path, columns: tuple[str, ...], stack: ExitStack) -> None:
        self._schema = pa.schema([(name, pa.large_string()) for name in columns])
        # With shuffled text, statistics never let a reader skip a row group.
        repeated = [name for name in columns if name not in DISTINCT]
        self._writer = stack.enter_context(
            pq.ParquetWriter(path, self._schema, compression="zstd", use_dictionary=repeated, write_statistics=False)
        )

    def write(self, frame: pl.DataFrame) -> None:
        if frame.height:
            self._writer.write_table(frame.select(self._schema.names).to_arrow().cast(self._schema))


def _excluded_lines(exclude: tuple[Artifact, ...], normalise: Normalise) -> dict[str, pl.Series]:
    """The lines of the excluded sets by side, normalised like the corpus."""
    frames = [pl.read_parquet(each.path() / "pairs.parquet", columns=list(SIDES)) for each in exclude]
    if not frames:
        return {side: pl.Series(side, [], dtype=pl.String) for side in SIDES}
    lines = normalise_sides(pl.concat(frames), normalise)
    return {side: lines[side].unique() for side in SIDES}


def _check_picklable(filters: Filters, workers: Workers) -> None:
    """Raise BadConfiguration naming a rule whose class other processes cannot import."""
    # Dask also sends the code of such a class, so only process pools are checked.
    for rule in filters.rules if isinstance(workers.executor, ProcessPoolExecutor) else ():
        try:
            pickle.dumps(rule)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise BadConfiguration(
                f"filters.rules: {type(rule).__qualname__} cannot be sent to other processes ({error}); define the "
                f"class in a file beside the run's and import it from there, or set REPRO_WORKERS=1"
            ) from error


def _frames(
    corpus: Corpus, archives: Mapping[str, Artifact], parts: Partitions, to_files: bool
) -> Iterator[tuple[Any, ...]]:
    """The arguments of ``Partitions.apply_filters`` for each frame, in reading order."""
    number = read = 0
    for part in corpus.parts:
        texts = (part.source, part.target)
        first = 0
        source, target = (archives[text.file.path].path() / text.file.name for text in texts)
        for frame in read_pairs(texts, (source, target)):
            if to_files:
                write_batches(parts.file(number, "raw"), frame)
            yield number, parts.file(number, "raw") if to_files else frame, part.name, first, read
            number += 1
            first += frame.height
            read += frame.height


def _apply_pair_rules(
    frames: Iterator[tuple[Any, ...]], parts: Partitions, workers: Workers, rejected: _ParquetWriter
) -> list[np.ndarray]:
    """The verdicts of the per-pair rules for each frame; writes the pairs that they reject."""
    verdicts: list[np.ndarray] = []
    read = 0
    for number, verdict in enumerate(workers.map(parts.apply_filters, frames)):
        verdicts.append(verdict)
        rejected.write(read_batch([parts.file(number, "rejected")]))
        for done in ("raw", "rejected"):
            parts.file(number, done).unlink(missing_ok=True)
        read += len(verdict)
        progress(read, read, f"{read:,} pairs read")
    return verdicts


def _apply_cross_pair_rules(verdict: np.ndarray, frames: int, parts: Partitions, workers: Workers) -> np.ndarray:
    """The verdicts of all rules; also writes them to ``verdict.npy``, which the workers read."""
    np.save(parts.folder / "verdict.npy", verdict)
    for at in sorted(parts.cross_pair_rules):
        calls = ((at, frames, part) for part in range(parts.hash_partitions))
        for rejected in list(workers.map(parts.apply_cross_pair_rule, calls)):
            verdict[rejected] = at
        np.save(parts.folder / "verdict.npy", verdict)
    return verdict


def _shuffled_buckets(frames: int, parts: Partitions, workers: Workers) -> Iterator[Sequence[pl.DataFrame]]:
    """For each bucket the kept and the rejected pairs."""
    calls = ((bucket, frames) for bucket in range(parts.buckets))
    if not workers.separate_processes:
        yield from workers.map(parts.sort_bucket, calls)
        return
    for paths in workers.map(parts.sort_bucket_to_files, calls):
        yield [read_batch([path]) for path in paths]
        for path in paths:
            path.unlink()


def _check_some_left(corpus: Corpus, filters: Filters, read: int, counts: Mapping[str, int]) -> None:
    """Raise BadData naming the rules that rejected pairs, with their limits, if no pair is left."""
    if sum(counts.values()) == read:
        by = ", ".join(f"{rule} removed {counts[rule.name]:,}" for rule in filters.rules if counts.get(rule.name))
        raise BadData(
            f"no pair of {read:,} is left in corpus {corpus.name}: {by}; --set filters.rules changes the rules"
        )


def check_share(corpus: Corpus, filters: Filters, facts: Mapping[str, Any], remark: str = "") -> None:
    """Raise BadData with counts and ``remark`` if rules for single pairs reject more than ``filters.max_rejected``.

    The limit is in no key, so a cached artifact is checked too. An artifact not made yet has no facts and passes.
    """
    by_rule = facts.get("rejected_by", {})
    judged = [rule.name for rule in filters.rules if not isinstance(rule, Distinct | NotIn)]
    counts = {name: by_rule.get(name, 0) for name in judged}
    read = facts.get("read", 0)
    rejected = sum(counts.values())
    if read >= FEWEST_JUDGED and rejected / read > filters.max_rejected:
        most = sorted(judged, key=lambda name: -counts[name])[:3]
        enough = ceil(100 * rejected / read) / 100
        raise BadData(
            f"The filters reject {rejected:,} of {read:,} pairs of {corpus.name} ({100 * rejected / read:.3g}%), "
            f"allowed by filters.max_rejected are {100 * filters.max_rejected:.3g}%. Most by: "
            f"{', '.join(f'{name} {counts[name]:,}' for name in most if counts[name])}. Are sides swapped, or is the "
            f"language or encoding wrong? If the pairs should go, --set filters.max_rejected={enough:g}{remark}"
        )


@stage(version=1)
def clean(
    out: Path, corpus: Corpus, archives: Mapping[str, Artifact], exclude: tuple[Artifact, ...], filters: Filters
) -> Facts:
    """Clean ``corpus``. ``archives``: its downloads by file path. ``exclude``: the sets whose lines ``NotIn`` removes.

    Raises BadData when the corpus is empty, a part's sides differ in length, no pair is left, or too many are rejected.
    """
    total = sum((archives[file.path].path() / file.name).stat().st_size for file in files(corpus))
    folder = (out / "parts").absolute()
    folder.mkdir()
    excluded = _excluded_lines(exclude, filters.normalise)
    parts = Partitions(folder, filters, excluded, 1 + total // BUCKET_BYTES, 1 + total // PART_BYTES)
    with ExitStack() as stack:
        workers = stack.enter_context(site().executor(at_once=2))
        _check_picklable(filters, workers)
        kept = _ParquetWriter(out / "pairs.parquet", KEPT, stack)
        rejected = _ParquetWriter(out / "rejected.parquet", REJECTED, stack)
        frames = _frames(corpus, archives, parts, workers.separate_processes)
        verdicts = _apply_pair_rules(frames, parts, workers, rejected)
        if not verdicts:
            raise BadData(f"corpus {corpus.name} holds no line")
        final = _apply_cross_pair_rules(np.concatenate(verdicts), len(verdicts), parts, workers)
        names = [rule.name for rule in filters.rules]
        counts = dict(zip(names, np.bincount(final, minlength=len(names) + 1)[:-1].tolist(), strict=True))
        read = len(final)
        dropped = sum(counts.values())
        written = 0
        for stays, leaves in _shuffled_buckets(len(verdicts), parts, workers):
            kept.write(stays)
            rejected.write(leaves)
            written += stays.height + leaves.height
            progress(written, read, f"{written:,} pairs shuffled")
    shutil.rmtree(folder)
    facts = {"read": read, "pairs": read - dropped, "rejected": dropped, "rejected_by": counts}
    try:
        _check_some_left(corpus, filters, read, counts)
        check_share(corpus, filters, facts)
    except BadData as refused:
        (out / REFUSED).write_text(json.dumps({"read": read, "why": f"{refused}"}))
        raise BadData(f"{refused}; `repro filters`, with the run and its --set, shows some of each") from refused
    return facts
