"""Tests of packed batches: the same numbers as padded rows, one constant shape, and no attention across pairs."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_training import SIZE, pairs, write_shards
from torch import Tensor

from model.config import Model
from model.config.special_pieces import BOS, EOS, PAD
from model.data.batch import Batch, load_padded
from model.data.batches import BatchSampler
from model.data.packing import BatchShape, load_packed, padding_of
from model.data.shards import Shards
from model.network.transformer import Transformer
from model.training.coverage import CoverageLoss
from model.training.loss import Objective
from tests.model.network.test_transformer import SHAPES

SHAPE = BatchShape(source=64, target=64, sentences=64, longest_source=10, longest_target=10)


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Shards:
    return Shards(write_shards(tmp_path_factory.mktemp("packing") / "shards", pairs(40)))


def build_model(config: Model) -> Transformer:
    torch.manual_seed(0)
    return Transformer(replace(config, p_drop=0.0), SIZE, SIZE).eval()


@settings(max_examples=50)
@given(rows=st.lists(st.integers(0, 39), max_size=12, unique=True))
def test_a_packed_batch_holds_the_pieces_of_its_rows(shards: Shards, rows: list[int]) -> None:
    batch = load_packed(shards, np.array(rows, np.int64), SHAPE)
    assert batch.packing
    assert batch.source.numel() % 64 == batch.target.numel() % 64 == 0
    assert len(batch.packing.source.cu_seqlens) == len(batch.packing.target.cu_seqlens) == 65
    starts_S, starts_T = (b.cu_seqlens.tolist() for b in (batch.packing.source, batch.packing.target))
    for i, row in enumerate(rows):
        source, target = (shards.pieces(side, row).tolist() for side in ("source", "target"))
        here_S, here_T = slice(starts_S[i], starts_S[i + 1]), slice(starts_T[i], starts_T[i + 1])
        assert batch.source[here_S].tolist() == [*source, EOS]
        assert batch.target[here_T].tolist() == [BOS, *target]
        assert batch.labels[here_T].tolist() == [*target, EOS]
        assert batch.packing.source_positions_S[here_S].tolist() == list(range(len(source) + 1))
        assert batch.packing.target_positions_T[here_T].tolist() == list(range(len(target) + 1))
    real = starts_S[len(rows)] + starts_T[len(rows)]
    assert batch.padding == batch.num_positions - real
    assert batch.pieces == starts_T[len(rows)] == int((batch.labels != PAD).sum())
    assert not batch.source[starts_S[len(rows)] :].any()
    assert not batch.target[starts_T[len(rows)] :].any()
    assert starts_S[-1] == batch.source.numel()
    assert starts_T[-1] == batch.target.numel()
    for bounds in (batch.packing.source, batch.packing.target):
        lengths = bounds.cu_seqlens.diff()
        assert lengths.min() >= 0
        assert lengths.max() <= bounds.max_seqlen == 10
    assert torch.equal(batch.packing.source.cu_seqlens.diff() > 0, batch.packing.target.cu_seqlens.diff() > 0)


@pytest.mark.parametrize("config", SHAPES)
@pytest.mark.parametrize("coverage", [0.0, 0.5])
def test_packed_is_padded_in_loss_and_gradients(shards: Shards, config: Model, coverage: float) -> None:
    rows = np.array([3, 17, 5, 30, 11])

    def computed(batch: Batch) -> list[Tensor]:
        model = build_model(config).train()
        objective = Objective(model, 0.1, CoverageLoss(model, coverage, 2 * coverage) if coverage else None)
        loss, nll = objective(batch)
        loss.backward()
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in objective.parameters()]
        return [loss.detach(), nll, *gradients]

    for mine, theirs in zip(
        computed(load_packed(shards, rows, SHAPE)), computed(load_padded(shards, rows)), strict=True
    ):
        torch.testing.assert_close(mine, theirs, atol=2e-5, rtol=1e-4)


def size(batch: Batch) -> tuple[object, ...]:
    """The sizes that the compiler specialises on."""
    assert batch.packing
    sides = (batch.packing.source, batch.packing.target)
    return (batch.source.shape, batch.target.shape, *((side.cu_seqlens.shape, side.max_seqlen) for side in sides))


@given(
    used=st.tuples(st.integers(0, 500), st.integers(0, 500)), longest=st.tuples(st.integers(1, 60), st.integers(1, 60))
)
def test_padding_sentences_fit_the_shape_on_both_sides(used: tuple[int, int], longest: tuple[int, int]) -> None:
    rest, fillers = padding_of(used, BatchShape(320, 320, 64, *longest))
    assert all(fillers <= more <= fillers * most for more, most in zip(rest, longest, strict=True))


def test_packed_batches_have_one_shape_and_almost_no_padding(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    target = np.maximum(1, random.lognormal(3.1, 0.6, 8_000)).astype(int)
    source = np.maximum(1, 0.9 * target + random.normal(0, 3, 8_000)).astype(int)
    rows = [([5] * a, [6] * b) for a, b in zip(source, target, strict=True)]
    plan = BatchSampler(Shards(write_shards(tmp_path / "shards", rows)), 4_096, 1, "packed")
    epoch = plan.epoch(0)
    assert sorted(row for batch in epoch for row in batch) == list(range(8_000))
    batches = [plan.load(batch, 1, 0) for batch in epoch]
    assert len({size(b) for b in batches}) == 1
    assert sum(b.padding for b in batches[:-1]) / sum(b.num_positions for b in batches[:-1]) < 0.03
    assert all(b.pieces <= 4_096 for b in batches)
    lengths = [plan.target[batch].mean() for batch in epoch]
    assert np.std(lengths) < 3, "pairs of like length lie together"
    for ranks, most in ((2, 0), (3, 500)):
        for batch in epoch[:3]:
            updates = [plan.read(batch, None, rank, ranks, most) for rank in range(ranks)]  # type: ignore[arg-type]
            assert sum(part.pieces for update in updates for part in update.micro_batches) == updates[0].pieces
            assert len({size(part) for update in updates for part in update.micro_batches}) == 1
