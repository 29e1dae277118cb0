"""Mixtures: each part has its share of every epoch."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.config import Training
from model.config.mixture import Mixture, parse_mixture
from model.data.batches import BatchSampler
from model.errors import JobError

Sizes = dict[str, int]


class Parts:
    """Shards of parts of these sizes, in an order that mixes them; each pair has one piece on each side."""

    folder = Path("made-up")

    def __init__(self, sizes: Sizes) -> None:
        names = [name for name, size in sizes.items() for _ in range(size)]
        self.ids = [f"{names[i]}:{i}" for i in np.random.default_rng(0).permutation(len(names))]
        half = len(self.ids) // 2
        self.blocks = [SimpleNamespace(pair_ids=pa.array(part)) for part in (self.ids[:half], self.ids[half:]) if part]
        self.lengths = {side: np.ones(len(self.ids), np.int64) for side in ("source", "target")}

    def __len__(self) -> int:
        return len(self.ids)

    def pair_id(self, row: int) -> str:
        return self.ids[row]

    def part(self, row: int) -> str:
        return self.ids[row].partition(":")[0]


def sampler(parts: Parts, mixture: str, seed: int = 1, batching: str = "buckets") -> BatchSampler:
    return BatchSampler(parts, 20, seed, batching, mixture)  # type: ignore[arg-type]


def counts(parts: Parts, batches: list[np.ndarray]) -> Sizes:
    read = [parts.part(row) for batch in batches for row in batch]
    return {name: read.count(name) for name in dict.fromkeys(read)}


sizes = st.fixed_dictionaries({name: st.integers(1, 40) for name in ("a", "b", "c")})
shares = st.dictionaries(st.sampled_from("abc"), st.floats(0.01, 100), min_size=1)


@settings(max_examples=60)
@given(sizes=sizes, shares=shares, epoch=st.integers(0, 3), batching=st.sampled_from(["buckets", "packed"]))
def test_an_epoch_has_each_part_s_share_and_repeats_its_pairs_evenly(
    sizes: Sizes, shares: dict[str, float], epoch: int, batching: str
) -> None:
    parts = Parts(sizes)
    text = ",".join(f"{name}={share}" for name, share in shares.items())
    batches = sampler(parts, text, batching=batching).epoch(epoch)
    found = counts(parts, batches)
    assert sum(found.values()) == len(parts)
    for name in sizes:
        expected = len(parts) * shares.get(name, 0) / sum(shares.values())
        assert abs(found.get(name, 0) - expected) <= 1
    times = np.bincount(np.concatenate(batches), minlength=len(parts))
    for name in shares:
        own = [times[row] for row in range(len(parts)) if parts.part(row) == name]
        assert max(own) - min(own) <= 1


@pytest.mark.parametrize(("temperature", "small"), [(1, 10), (2, 1010 / (1 + 10)), (1e9, 505)])
def test_a_temperature_raises_the_share_of_small_parts(temperature: float, small: float) -> None:
    parts = Parts({"large": 1_000, "small": 10})
    assert counts(parts, sampler(parts, f"temperature={temperature}").epoch(0))["small"] == pytest.approx(small, abs=1)


def test_a_part_without_pairs_is_named() -> None:
    with pytest.raises(JobError, match="training.mixture names 'news', but made-up has pairs of"):
        sampler(Parts({"a": 5}), "news=1,a=1")


def test_a_mixture_is_read_as_written() -> None:
    assert parse_mixture("") is None
    assert parse_mixture("europarl-v7=3, news 2012=.5") == Mixture((("europarl-v7", 3.0), ("news 2012", 0.5)))
    assert parse_mixture("temperature=5") == Mixture(temperature=5.0)


WRONG = ("a", "a=", "a=0", "a=-1", "a=inf", "a=nan", "=1", "a=1,a=2", ";", "temperature=0.5", "a=1; 5: b=1")


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_mixture_is_one_sentence(text: str) -> None:
    with pytest.raises(ValueError, match=r"training\.mixture is .*, allowed is "):
        Training(updates=100, mixture=text)
