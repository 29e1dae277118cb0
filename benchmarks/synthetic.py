"""Writes synthetic shards, a vocabulary and a dev set from a length distribution, a count and a seed.

There is no text: tokens are drawn with a probability of one over their rank, as words are in text. The files have the
format of a real corpus (docs/design.md).
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from tokenizers import Tokenizer, models

from model.config.special_pieces import SPECIAL_TOKENS

BATCH_PAIRS = 50_000
PAIRS_PER_SHARD = 500_000


@dataclass(frozen=True)
class Lengths:
    """Lengths of pairs in tokens without bos and eos: correlated log-normal sides, at most ``most``."""

    source: tuple[float, float]
    """Mean and standard deviation of the logarithm."""
    target: tuple[float, float]
    correlation: float
    """Of the two logarithms."""
    most: int

    @property
    def mean(self) -> float:
        """Mean tokens of the longer side, before the cut."""
        return max(float(np.exp(mean + sd**2 / 2)) for mean, sd in (self.source, self.target))

    def draw(self, random: np.random.Generator, pairs: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Draw the lengths of both sides of ``pairs`` pairs, each at least 1."""
        one, other = random.standard_normal((2, pairs))
        other = self.correlation * one + np.sqrt(1 - self.correlation**2) * other
        source, target = (
            np.exp(mean + sd * normal) for (mean, sd), normal in ((self.source, one), (self.target, other))
        )
        return self._whole(source), self._whole(target)

    def _whole(self, lengths: NDArray[np.float64]) -> NDArray[np.int64]:
        return np.clip(np.rint(lengths), 1, self.most).astype(np.int64)


LENGTHS = {
    # Blank-separated words times 1.25 pieces of the 29,000 English-German training pairs of Multi30k: means 14.9 and
    # 13.9, 10th to 90th percentile 10-21 and 9-20, 99th 29 and 29; correlation of logarithms 0.86.
    "multi30k": Lengths((2.651, 0.310), (2.574, 0.339), 0.860, 100),
    # The same of 52,058 pairs of WMT14 (Europarl, News Commentary, Common Crawl): means 28.9 and 26.8, 10th to 90th
    # percentile 11-50 and 10-48, 99th 85 and 79; correlation of logarithms 0.925.
    "wmt": Lengths((3.198, 0.600), (3.122, 0.601), 0.925, 150),
}


def write_corpus(folder: Path, lengths: Lengths, pairs: int, vocabulary: int, seed: int) -> None:
    """Write ``shards/``, ``dev/`` (100 pairs) and ``vocabulary/`` into a folder."""
    write_shards(folder / "shards", lengths, pairs, vocabulary, seed)
    write_shards(folder / "dev", lengths, 100, vocabulary, seed + 1)
    (folder / "vocabulary").mkdir()
    pieces = [*SPECIAL_TOKENS, *(f"p{i}" for i in range(len(SPECIAL_TOKENS), vocabulary))]
    tokenizer = Tokenizer(models.BPE({piece: i for i, piece in enumerate(pieces)}, []))
    tokenizer.save(str(folder / "vocabulary" / "tokenizer.json"))


def write_shards(folder: Path, lengths: Lengths, pairs: int, vocabulary: int, seed: int) -> None:
    """Write ``00000.arrow`` … with tokens below ``vocabulary``, in record batches of the usual size."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(seed)
    kind = pa.list_(pa.uint16() if vocabulary <= 1 << 16 else pa.uint32())
    schema = pa.schema([("pair_id", pa.string()), ("source", kind), ("target", kind)])
    for begin in range(0, pairs, PAIRS_PER_SHARD):
        end = min(begin + PAIRS_PER_SHARD, pairs)
        with pa.ipc.new_file(str(folder / f"{begin // PAIRS_PER_SHARD:05}.arrow"), schema) as file:
            for first in range(begin, end, BATCH_PAIRS):
                count = min(BATCH_PAIRS, end - first)
                ids = pa.array([f"synthetic:{first + i}" for i in range(count)])
                sides = [_pieces(random, side, vocabulary, kind) for side in lengths.draw(random, count)]
                file.write_batch(pa.record_batch([ids, *sides], schema=schema))


def _pieces(random: np.random.Generator, lengths: NDArray[np.int64], vocabulary: int, kind: pa.DataType) -> pa.Array:
    first = len(SPECIAL_TOKENS)
    others = vocabulary - len(SPECIAL_TOKENS)
    # others ** uniform has a density of one over its value: ranks from 1 to others.
    ranks = np.float32(others) ** random.random(int(lengths.sum()), np.float32)
    values = np.minimum(ranks.astype(np.int64), others) - 1 + first
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values, kind.value_type), type=kind)
