"""Tests of the attention-coverage loss: values by hand, gradients, packed batches, and the pull on the attention."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from small_training import MODEL, SIZE, pairs, write_shards
from torch import Tensor

from model.data.batch import Batch, load_padded
from model.data.packing import BatchShape
from model.data.shards import Shards
from model.network.transformer import Transformer
from model.training.coverage import CoverageLoss, coverage_loss, marginal, normalised_entropy
from model.training.loss import Objective
from model.training.probes import probe

SHAPE = BatchShape(source=64, target=64, sentences=64, longest_source=10, longest_target=10)
ALL = torch.ones(1, 6, dtype=torch.bool)


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Shards:
    return Shards(write_shards(tmp_path_factory.mktemp("coverage") / "shards", pairs(40)))


def loss(weights_TS: Tensor) -> float:
    weights_BHTS = weights_TS[None, None]
    queries, positions = torch.ones(1, weights_TS.shape[0], dtype=torch.bool), torch.tensor([weights_TS.shape[1]])
    return float(coverage_loss(marginal(weights_BHTS, queries), positions))


def test_a_diagonal_and_uniform_weights_have_no_loss_and_one_source_for_all_queries_has_1() -> None:
    diagonal = torch.eye(6, dtype=torch.float64)
    assert float(normalised_entropy(marginal(diagonal[None, None], ALL), torch.tensor([6]))) == pytest.approx(1)
    assert math.log(6) == pytest.approx(1.79, abs=0.005)
    assert loss(diagonal) == pytest.approx(0, abs=1e-12)
    assert loss(torch.full((4, 6), 1 / 6)) == pytest.approx(0, abs=1e-12)
    assert loss(diagonal[0].expand(6, 6)) == pytest.approx(1)
    # Three of four queries on one of two positions: H = -(3/4 log 3/4 + 1/4 log 1/4).
    skewed = torch.tensor([[1, 0], [1, 0], [1, 0], [0, 1]], dtype=torch.float64)
    entropy = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert loss(skewed) == pytest.approx((1 - entropy / math.log(2)) ** 2)


def test_heads_share_the_positions_and_padding_is_no_query() -> None:
    weights = torch.eye(2, dtype=torch.float64)[None, :, None].expand(1, 2, 3, 2)  # each head looks at one position
    assert float(coverage_loss(marginal(weights, ALL[:, :3]), torch.tensor([2]))) == pytest.approx(0, abs=1e-12)
    rows = torch.tensor([[[1.0, 0], [0, 1], [0, 1], [0, 1]]], dtype=torch.float64)[:, None]
    real = torch.tensor([[True, True, False, False]])
    assert marginal(rows, real).tolist() == [[0.5, 0.5]]


def test_gradients_are_those_of_the_plain_formula() -> None:
    """Two sentences with padding in queries and keys, through the softmax."""
    torch.manual_seed(0)
    scores = torch.randn(2, 2, 4, 5, dtype=torch.float64, requires_grad=True)
    queries, positions = torch.tensor([4, 2]), torch.tensor([5, 3])
    masked = scores.masked_fill(torch.arange(5) >= positions[:, None, None, None], -math.inf)
    real = torch.arange(4) < queries[:, None]
    mine = coverage_loss(marginal(masked.softmax(-1), real), positions)
    plain = []
    for b in range(2):
        p_S = scores[b, :, : queries[b], : positions[b]].softmax(-1).mean((0, 1))
        plain.append((1 + (p_S * p_S.log()).sum() / math.log(int(positions[b]))) ** 2)
    torch.testing.assert_close(mine, torch.stack(plain), atol=1e-12, rtol=0)
    weights = torch.tensor([1.3, -0.4], dtype=torch.float64)
    found, expected = (
        torch.autograd.grad((value * weights).sum(), scores, retain_graph=True)[0]
        for value in (mine, torch.stack(plain))
    )
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)

    def of_scores(scores: Tensor) -> Tensor:
        return coverage_loss(marginal(scores.softmax(-1), real), torch.tensor([5, 5]))

    assert torch.autograd.gradcheck(of_scores, (scores,))


def added_loss(model: Transformer, batch: Batch, encoder: float, cross: float) -> Tensor:
    """What the coverage loss adds to the loss of a batch."""
    plain = Objective(model, 0.1).train()(batch)[0]
    return (Objective(model, 0.1, CoverageLoss(model, encoder, cross)).train()(batch)[0] - plain).detach()


def test_each_attention_has_its_weight_and_each_sentence_counts_by_its_target_pieces(shards: Shards) -> None:
    torch.manual_seed(0)
    model = Transformer(replace(MODEL, p_drop=0.0), SIZE, SIZE).double()
    rows = [3, 17, 5]
    batch = load_padded(shards, np.array(rows))
    encoder, cross = 0.0, 0.0
    for row in rows:
        alone = load_padded(shards, np.array([row]))
        values = probe(model.eval(), alone.source, alone.target)
        encoder += alone.pieces * (1 - values["attention_coverage_encoder"]) ** 2
        cross += alone.pieces * (1 - values["attention_coverage_cross"]) ** 2
    assert float(added_loss(model, batch, 0.0, 2.0)) == pytest.approx(2 * cross, rel=1e-5)
    assert float(added_loss(model, batch, 3.0, 0.0)) == pytest.approx(3 * encoder, rel=1e-5)
    assert float(added_loss(model, batch, 3.0, 2.0)) == pytest.approx(3 * encoder + 2 * cross, rel=1e-5)
    objective = Objective(model, 0.1, CoverageLoss(model, 1.0, 1.0)).eval()
    assert objective(batch)[0] == Objective(model, 0.1).eval()(batch)[0], "only training has the loss"
