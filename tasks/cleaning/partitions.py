"""The steps of ``clean`` that run in any process, on any machine that sees the same scratch folder.

Their results do not depend on the number of frames, partitions or workers. The folder holds, for frame ``n``:

    n.raw.arrow         source and target, if another process filters them
    n.pairs.arrow       pairs that no per-pair rule rejects; batch b is bucket b of the shuffled order
    n.rejected.arrow    the other pairs, with the filter that rejects them
    n.rule-r.arrow      values of the cross-pair rule r, with ``at``; batch p is hash partition p
    verdict.npy         the index of the first rule that rejects each pair so far, in reading order
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from model.config.normalise import Normalise
from tasks.cleaning.filters import KNOWN, SIDES, Distinct, Filters, normalised
from tasks.lazy_libraries import NDArray, np, pa, pl

KEPT = ("pair_id", "corpus", *SIDES)
REJECTED = (*KEPT, "filter")
REFUSED = "refused.json"

_GOLDEN = 0x9E3779B97F4A7C15


def normalise_sides(frame: pl.DataFrame, normalise: Normalise) -> pl.DataFrame:
    """The frame with both sides normalised."""
    return frame.lazy().with_columns(normalised(side, normalise) for side in SIDES).collect()


def first_rejecting_rule(frame: pl.DataFrame, filters: Filters) -> pl.Series:
    """The index of the first per-pair rule that rejects each pair, ``len(rules)`` if none does.

    ``frame`` holds ``source``, ``target`` and ``known``.
    """
    last = len(filters.rules)
    first = [
        pl.when(rule.keep()).then(pl.lit(last, pl.UInt8)).otherwise(pl.lit(at, pl.UInt8))
        for at, rule in enumerate(filters.rules)
        if not isinstance(rule, Distinct)
    ]
    # Lazy, because only then polars counts the words once for all rules.
    lowest = pl.min_horizontal(pl.repeat(last, pl.len(), dtype=pl.UInt8), *first)
    return frame.lazy().select(lowest.alias("verdict")).collect().to_series()


def shuffle_positions(part: str, first: int, count: int, seed: int) -> np.ndarray:
    """The positions of pairs ``first`` to ``first + count`` of a part in the shuffled order, as 64-bit numbers.

    Computed by splitmix64 here, so that no library version changes the order. Distinct within a part.
    """
    start = int.from_bytes(hashlib.sha256(f"{seed}:{part}".encode()).digest()[:8], "little")
    z = np.uint64(start) + np.arange(first + 1, first + count + 1, dtype=np.uint64) * np.uint64(_GOLDEN)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@dataclass(frozen=True)
class Partitions:
    """The cleaning steps and their shared settings; picklable, so that other processes can run them."""

    folder: Path
    filters: Filters
    excluded: Mapping[str, pl.Series]
    """The lines that ``NotIn`` removes, by side, normalised."""
    buckets: int
    """Buckets of the shuffled order."""
    hash_partitions: int
    """Partitions by first value, for each cross-pair rule."""

    @property
    def cross_pair_rules(self) -> dict[int, Distinct]:
        """The cross-pair rules by their index."""
        return {at: rule for at, rule in enumerate(self.filters.rules) if isinstance(rule, Distinct)}

    @property
    def first_cross_pair_rule(self) -> int:
        """The index of the first cross-pair rule; a verdict below it does not depend on other pairs."""
        return min(self.cross_pair_rules, default=len(self.filters.rules))

    def file(self, number: int, what: str) -> Path:
        return self.folder / f"{number}.{what}.arrow"

    def apply_filters(
        self, number: int, raw: pl.DataFrame | Path, name: str, first: int, read: int
    ) -> NDArray[np.uint8]:
        """Verdicts of the per-pair rules for frame ``number``; writes its pairs, rejected pairs and cross-pair values.

        The frame begins at line ``first`` of the corpus part ``name`` and at pair ``read`` of the corpus.
        """
        lines = raw if isinstance(raw, pl.DataFrame) else read_batch([raw])
        count = lines.height
        known = pl.any_horizontal(pl.col(side).is_in(self.excluded[side].implode()) for side in SIDES)
        frame = normalise_sides(lines, self.filters.normalise).with_columns(
            known.alias(KNOWN),
            pl.format("{}:{}", pl.lit(name), pl.int_range(first, first + count)).alias("pair_id"),
            pl.lit(name).alias("corpus"),
            pl.int_range(read, read + count, dtype=pl.UInt32).alias("at"),
            pl.Series("position", shuffle_positions(name, first, count, self.filters.seed)),
        )
        verdict = first_rejecting_rule(frame, self.filters)
        rejected = frame.with_columns(self.rule_names(verdict)).filter(verdict < self.first_cross_pair_rule)
        write_batches(self.file(number, "rejected"), rejected.select(REJECTED))
        pairs = frame.select("position", "at", *KEPT).filter(verdict >= self.first_cross_pair_rule)
        write_batches(self.file(number, "pairs"), pairs, self.buckets)
        for at, rule in self.cross_pair_rules.items():
            values = frame.filter(verdict > at).select(rule.value(), "at")
            write_batches(self.file(number, f"rule-{at}"), values, self.hash_partitions)
        return verdict.to_numpy()

    def apply_cross_pair_rule(self, at: int, frames: int, part: int) -> NDArray[np.uint32]:
        """The pairs of a hash partition that rule ``at`` is the first to reject, by index in reading order."""
        values = read_batch([self.file(number, f"rule-{at}") for number in range(frames)], part)
        verdict = np.load(self.folder / "verdict.npy", mmap_mode="r")
        alive = values.filter(pl.Series(verdict[values["at"].to_numpy()] > at))
        rejected: NDArray[np.uint32] = alive.filter(~pl.col("value").is_first_distinct())["at"].to_numpy()
        return rejected

    def sort_bucket(self, bucket: int, frames: int) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The kept and the rejected pairs of a bucket, in shuffled order."""
        pairs = read_batch([self.file(number, "pairs") for number in range(frames)], bucket)
        verdict = np.load(self.folder / "verdict.npy", mmap_mode="r")[pairs["at"].to_numpy()]
        order = np.argsort(pairs["position"].to_numpy(), kind="stable")
        stays = verdict[order] == len(self.filters.rules)
        rejected = order[~stays]
        names = self.rule_names(pl.Series(verdict[rejected]))
        return pairs.select(KEPT)[order[stays]], pairs.select(KEPT)[rejected].with_columns(names)

    def sort_bucket_to_files(self, bucket: int, frames: int) -> tuple[Path, Path]:
        """Write the two frames of ``sort_bucket``; returns their files."""
        kept, rejected = self.sort_bucket(bucket, frames)
        paths = self.file(bucket, "kept"), self.file(bucket, "left")
        write_batches(paths[0], kept)
        write_batches(paths[1], rejected)
        return paths

    def rule_names(self, verdict: pl.Series) -> pl.Series:
        """The names of the rules with these indices."""
        return pl.Series("filter", [*(rule.name for rule in self.filters.rules), ""], dtype=pl.String).gather(verdict)


def write_batches(path: Path, frame: pl.DataFrame, count: int = 1) -> None:
    """Write ``count`` record batches: rows are assigned by the highest bits of the first column and keep their order.

    The file appears by a rename, so that the call of a lost process can be repeated. Not compressed: compression would
    take as long as the rest of the cleaning.
    """
    bounds = np.array([0, frame.height])
    if count > 1:
        batch = ((frame.to_series(0).to_numpy() >> np.uint64(32)) * np.uint64(count)) >> np.uint64(32)
        frame = frame[np.argsort(batch, kind="stable")]
        bounds = np.concatenate(([0], np.cumsum(np.bincount(batch.astype(np.int64), minlength=count))))
    table = frame.to_arrow()
    rows = pa.record_batch([column.combine_chunks() for column in table.columns], schema=table.schema)
    partial = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    with pa.ipc.new_file(str(partial), rows.schema) as file:
        for begin, end in pairwise(bounds.tolist()):
            file.write_batch(rows.slice(begin, end - begin))
    partial.replace(path)


def read_batch(paths: Iterable[Path], number: int = 0) -> pl.DataFrame:
    """Batch ``number`` of each file, concatenated."""
    batches = []
    for path in paths:
        with pa.memory_map(str(path)) as file:
            batches.append(pa.ipc.open_file(file).get_batch(number))
    return pl.DataFrame(pl.from_arrow(pa.Table.from_batches(batches)))
