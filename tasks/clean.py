"""Raw text to training pairs: read, number, normalise, filter, shuffle.

In come archives and the sets whose lines must not be learnt, out go ``pairs.parquet`` and ``rejected.parquet``. Pieces
and models are not known here. Memory holds one bucket of pairs and a few bytes for each pair, however large the corpus:

1. frames of pairs are read, normalised and judged by every rule that looks at one pair;
2. undecided pairs go to the bucket of their place in the shuffled order, on disk;
3. ``Distinct`` is decided on 64-bit values of all pairs;
4. each bucket is sorted and written.
"""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet

from infra.faults import BadData
from infra.store import Artifact
from tasks import reading
from tasks.corpora import Corpus, Part
from tasks.filters import KNOWN, SIDES, Distinct, Filters, Normalise
from tasks.stage import Facts, progress, stage

BUCKET_BYTES = 64 << 20
"""Bytes of compressed source text for one bucket; it decides the memory, not the result's order."""
KEPT = ("pair_id", "corpus", *SIDES)
REJECTED = (*KEPT, "filter")

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def normalised(frame: pl.DataFrame, normalise: Normalise) -> pl.DataFrame:
    """The frame with both sides rewritten."""
    return frame.with_columns(normalise.expression(side) for side in SIDES)


def verdicts(frame: pl.DataFrame, filters: Filters) -> pl.Series:
    """For each pair the index of the first rule that rejects it, ``len(rules)`` for none. Distinct is left out.

    ``frame`` holds ``source``, ``target`` and ``known``.
    """
    last = len(filters.rules)
    first = [
        pl.when(rule.keep()).then(pl.lit(last, pl.UInt8)).otherwise(pl.lit(at, pl.UInt8))
        for at, rule in enumerate(filters.rules)
        if not isinstance(rule, Distinct)
    ]
    # Lazily, because only then polars counts the words once for all rules that ask.
    lowest = pl.min_horizontal(pl.repeat(last, pl.len(), dtype=pl.UInt8), *first)
    return frame.lazy().select(lowest.alias("verdict")).collect().to_series()


def places(part: str, first: int, count: int, seed: int) -> np.ndarray:
    """Where pairs ``first`` to ``first + count`` of a part stand in the shuffled order: 64-bit numbers.

    Arithmetic of our own (splitmix64): no new version of a library shuffles anew. No two pairs of a part share one.
    """
    start = int.from_bytes(hashlib.sha256(f"{seed}:{part}".encode()).digest()[:8], "little")
    z = np.uint64(start) + np.arange(first + 1, first + count + 1, dtype=np.uint64) * _GOLDEN
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def repeated(verdict: np.ndarray, values: Mapping[int, np.ndarray]) -> np.ndarray:
    """``verdict`` with each Distinct decided: ``values`` gives, by the rule's index, a number a pair, in reading order.

    A pair counts as seen only if all rules before let it pass.
    """
    verdict = verdict.copy()
    for at, numbers in sorted(values.items()):
        alive = np.flatnonzero(verdict > at)
        first = pl.Series(numbers[alive]).is_first_distinct().to_numpy()
        verdict[alive[~first]] = at
    return verdict


def _excluded(exclude: tuple[Artifact, ...], normalise: Normalise) -> dict[str, pl.Series]:
    """The lines of the excluded sets by side, normalised as the corpus is."""
    frames = [pl.read_parquet(each.path() / "pairs.parquet", columns=list(SIDES)) for each in exclude]
    if not frames:
        return {side: pl.Series(side, [], dtype=pl.String) for side in SIDES}
    lines = normalised(pl.concat(frames), normalise)
    return {side: lines[side].unique() for side in SIDES}


def _read(part: Part, archives: Mapping[str, Artifact]) -> Iterator[pl.DataFrame]:
    source, target = (archives[text.file.path].path() / text.file.name for text in (part.source, part.target))
    return reading.read((part.source, part.target), (source, target))


def _numbered(corpus: Corpus, archives: Mapping[str, Artifact], seed: int) -> Iterator[pl.DataFrame]:
    """All pairs in reading order, with ``pair_id``, ``corpus`` and their ``place``; as read otherwise."""
    for part in corpus.parts:
        first = 0
        for frame in _read(part, archives):
            lines = pl.int_range(first, first + frame.height)
            yield frame.with_columns(
                pl.format("{}:{}", pl.lit(part.name), lines).alias("pair_id"),
                pl.lit(part.name).alias("corpus"),
                pl.Series("place", places(part.name, first, frame.height, seed)),
            )
            first += frame.height


class _Buckets:
    """Frames spread over files by the highest bits of ``place``."""

    def __init__(self, folder: Path, count: int) -> None:
        self._folder = folder
        self._count = count
        self._writers: dict[int, pa.ipc.RecordBatchStreamWriter] = {}
        folder.mkdir()

    def add(self, frame: pl.DataFrame) -> None:
        bucket = ((frame["place"].to_numpy() >> np.uint64(32)) * np.uint64(self._count)) >> np.uint64(32)
        for number in np.unique(bucket):
            table = frame.filter(pl.Series(bucket == number)).to_arrow()
            if int(number) not in self._writers:
                options = pa.ipc.IpcWriteOptions(compression="lz4")
                path = self._folder / f"{number}.arrow"
                self._writers[int(number)] = pa.ipc.new_stream(path, table.schema, options=options)
            self._writers[int(number)].write_table(table)

    def sorted(self) -> Iterator[pl.DataFrame]:
        """One frame a bucket, in the order of ``place``, then of ``at``; each bucket's file is gone afterwards."""
        self.close()
        for number in sorted(self._writers):
            path = self._folder / f"{number}.arrow"
            with pa.ipc.open_stream(path) as stream:
                frame = pl.DataFrame(pl.from_arrow(stream.read_all()))
            path.unlink()
            yield frame.sort("place", "at")
        self._folder.rmdir()

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()


class _Parquet:
    """A zstd Parquet file of string columns, written frame by frame; there even if no frame comes."""

    def __init__(self, path: Path, columns: tuple[str, ...], stack: ExitStack) -> None:
        self._columns = list(columns)
        self._schema = pa.schema([(name, pa.large_string()) for name in columns])
        self._writer = stack.enter_context(pa.parquet.ParquetWriter(path, self._schema, compression="zstd"))

    def write(self, frame: pl.DataFrame) -> None:
        if frame.height:
            self._writer.write_table(frame.select(self._columns).to_arrow().cast(self._schema))


def cleaned(
    out: Path, corpus: Corpus, archives: Mapping[str, Artifact], exclude: tuple[Artifact, ...], filters: Filters
) -> Facts:
    """Write ``pairs.parquet`` and ``rejected.parquet``; gives the counts.

    Raises BadData when a part's sides differ in length, or naming the rule that took most when nothing is left.
    """
    names = [rule.name for rule in filters.rules]
    distinct = {at: rule for at, rule in enumerate(filters.rules) if isinstance(rule, Distinct)}
    decided = min(distinct, default=len(names))
    excluded = _excluded(exclude, filters.normalise)
    texts = {text.file for part in corpus.parts for text in (part.source, part.target)}
    total = sum((archives[file.path].path() / file.name).stat().st_size for file in texts)
    buckets = _Buckets(out / "buckets", 1 + total // BUCKET_BYTES)
    judged: list[np.ndarray] = []
    values: dict[int, list[np.ndarray]] = {at: [] for at in distinct}
    read = 0
    with ExitStack() as stack:
        kept = _Parquet(out / "pairs.parquet", KEPT, stack)
        rejected = _Parquet(out / "rejected.parquet", REJECTED, stack)
        labels = pl.Series("filter", [*names, ""], dtype=pl.String)
        for raw in _numbered(corpus, archives, filters.seed):
            frame = normalised(raw, filters.normalise)
            known = pl.any_horizontal(pl.col(side).is_in(excluded[side].implode()) for side in SIDES)
            verdict = verdicts(frame.with_columns(known.alias(KNOWN)), filters)
            judged.append(verdict.to_numpy())
            for at, rule in distinct.items():
                values[at].append(frame.select(rule.value()).to_series().to_numpy())
            rejected.write(frame.with_columns(labels.gather(verdict)).filter(verdict < decided))
            line = pl.int_range(read, read + frame.height, dtype=pl.UInt32).alias("at")
            buckets.add(frame.with_columns(line).filter(verdict >= decided))
            read += frame.height
            progress(read, read, f"{read:,} pairs read")
        if not read:
            raise BadData(f"corpus {corpus.name} holds no line")
        final = repeated(np.concatenate(judged), {at: np.concatenate(numbers) for at, numbers in values.items()})
        counts = dict(zip(names, np.bincount(final, minlength=len(names) + 1)[:-1].tolist(), strict=True))
        left = read - sum(counts.values())
        if not left:
            most = max(counts, key=lambda name: counts[name])
            raise BadData(
                f"No pair of {read} is left in corpus {corpus.name}: {most} removed {counts[most]}. "
                f"All: {', '.join(f'{name} {count}' for name, count in counts.items())}"
            )
        written = 0
        for frame in buckets.sorted():
            verdict = pl.Series(final[frame["at"].to_numpy()])
            kept.write(frame.filter(verdict == len(names)))
            rejected.write(frame.with_columns(labels.gather(verdict)).filter(verdict < len(names)))
            written += frame.height
            progress(written, read, f"{written:,} pairs shuffled")
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
    return cleaned(out, corpus, archives, exclude, filters)
