"""Tests of the batches of an epoch: every pair once, within the budget, the same for any number of ranks."""

from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_training import pairs, write_shards

from model.config.special_pieces import BOS, EOS, PAD
from model.data.batch import load_padded
from model.data.batches import BatchSampler, Cursor
from model.data.shards import Shards
from model.errors import JobError


class Lengths:
    """Shards that have lengths only."""

    folder = Path("made-up")

    def __init__(self, source: list[int], target: list[int]) -> None:
        self.lengths = {"source": np.array(source, np.int64), "target": np.array(target, np.int64)}

    def __len__(self) -> int:
        return len(self.lengths["source"])

    def pair_id(self, row: int) -> str:
        return f"made-up:{row}"


def plan(source: list[int], target: list[int], budget: int, seed: int = 1) -> BatchSampler:
    return BatchSampler(Lengths(source, target), budget, seed)  # type: ignore[arg-type]


lengths = st.lists(st.tuples(st.integers(0, 19), st.integers(0, 19)), min_size=1, max_size=60)


@settings(max_examples=60)
@given(pairs=lengths, budget=st.integers(20, 90), epoch=st.integers(0, 3), ranks=st.integers(1, 4))
def test_an_epoch_has_every_pair_once_and_keeps_the_budget(
    pairs: list[tuple[int, int]], budget: int, epoch: int, ranks: int
) -> None:
    source, target = zip(*pairs, strict=True)
    made = plan(list(source), list(target), budget)
    batches = made.epoch(epoch)
    assert sorted(row for batch in batches for row in batch) == list(range(len(pairs)))
    for batch in batches:
        assert made.source[batch].sum() <= budget
        assert made.target[batch].sum() <= budget
        shares = [made.rank_rows(batch, rank, ranks) for rank in range(ranks)]
        assert sorted(row for share in shares for row in share) == sorted(batch)
        parts = made.split_rows(batch, 25)
        assert np.concatenate(parts).tolist() == batch.tolist()
        assert all(made.target[part].sum() <= 25 for part in parts)


def test_a_batch_is_a_function_of_seed_and_update_alone() -> None:
    random = np.random.default_rng(0)
    source, target = random.integers(1, 20, (2, 500)).tolist()

    def first(seed: int) -> list[list[int]]:
        made = plan(source, target, 100, seed)
        return [batch.tolist() for batch, _ in islice(made.batches_from(Cursor()), 300)]

    assert first(1) == first(1)
    assert first(1) != first(2)
    assert first(1)[:50] != first(1)[len(plan(source, target, 100).epoch(0)) :][:50], "epochs have the same order"


def test_batches_from_any_cursor_continue_the_sequence() -> None:
    made = plan(list(range(1, 19)), list(range(1, 19)), 30)
    whole = list(islice(made.batches_from(Cursor()), 40))
    for done in (1, len(made.epoch(0)), 25):
        rest = list(islice(made.batches_from(whole[done - 1][1]), 40 - done))
        assert [(a.tolist(), p) for a, p in rest] == [(a.tolist(), p) for a, p in whole[done:]]


def test_padding_is_small_and_batches_are_not_sorted_by_length() -> None:
    random = np.random.default_rng(0)
    target = np.maximum(1, random.normal(14, 5, 20_000)).astype(int)
    source = np.maximum(1, target + random.normal(0, 2, 20_000)).astype(int)
    made = plan(source.tolist(), target.tolist(), 4096)
    batches = made.epoch(0)
    cells = sum(len(b) * (made.source[b].max() + made.target[b].max()) for b in batches)
    assert 1 - (made.source.sum() + made.target.sum()) / cells < 0.12
    means = np.array([made.target[batch].mean() for batch in batches])
    assert abs(np.corrcoef(means[:-1], means[1:])[0, 1]) < 0.5


def test_a_mixed_batch_has_all_lengths_and_little_padding(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    lengths = np.maximum(1, random.normal(14, 5, 3_000)).astype(int)
    made = BatchSampler(
        Shards(write_shards(tmp_path / "shards", [([4] * n, [5] * n) for n in lengths])), 4096, 1, "mixed"
    )
    batches = made.epoch(0)
    assert sorted(row for batch in batches for row in batch) == list(range(3_000))
    for batch in batches[:-1]:
        assert abs(made.target[batch].mean() - made.target.mean()) < 1
        update = made.read(batch, Cursor(), 0, 1, 0)
        assert len(update.micro_batches) in (4, 5)
        assert sum(part.pieces for part in update.micro_batches) == update.pieces == made.target[batch].sum()
        cells = sum(part.num_positions for part in update.micro_batches)
        assert (made.source[batch].sum() + made.target[batch].sum()) / cells > 0.8


def test_batches_can_count_sentences() -> None:
    random = np.random.default_rng(0)
    source, target = random.integers(1, 40, (2, 1_003)).tolist()
    made = BatchSampler(Lengths(source, target), 10, 1, sentences=16)  # type: ignore[arg-type]
    batches = made.epoch(0)
    assert sorted(map(len, batches)) == [1_003 % 16] + [16] * (1_003 // 16)
    assert sorted(row for batch in batches for row in batch) == list(range(1_003))
    spread = [np.ptp(made.target[batch]) for batch in batches]
    assert np.mean(spread) < 3, "pairs of a batch have different lengths"


def test_a_pair_beyond_the_budget_is_named() -> None:
    with pytest.raises(JobError, match=r"made-up:1 in made-up has 5 source and 31 target pieces, more than .* 30"):
        plan([3, 4, 5], [3, 30, 5], 30)
    with pytest.raises(JobError, match="holds no pair"):
        plan([], [], 30)


def test_a_batch_holds_the_pieces_of_its_rows(tmp_path: Path) -> None:
    rows = pairs(12)
    shards = Shards(write_shards(tmp_path / "shards", rows, files=1))
    batch = load_padded(shards, np.array([3, 7, 5]))
    for i, row in enumerate((3, 7, 5)):
        source, target = rows[row]
        assert [x for x in batch.source[i].tolist() if x != PAD] == [*source, EOS]
        assert [x for x in batch.target[i].tolist() if x != PAD] == [BOS, *target]
    assert batch.labels.tolist() == [piece for row in (3, 7, 5) for piece in [*rows[row][1], EOS]]
    # Where a label is predicted, the decoder has just read the label before it.
    read = batch.target.flatten()[batch.label_indices].tolist()
    assert read == [piece for row in (3, 7, 5) for piece in [BOS, *rows[row][1]]]
    real = (batch.source != PAD).sum() + len(batch.label_indices)
    assert batch.padding == batch.num_positions - real


def test_an_empty_share_predicts_nothing(tmp_path: Path) -> None:
    shards = Shards(write_shards(tmp_path / "shards", pairs(3)))
    batch = load_padded(shards, np.zeros(0, np.int64))
    assert batch.source.tolist() == [[EOS]]
    assert len(batch.labels) == len(batch.label_indices) == 0
