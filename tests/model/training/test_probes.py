"""Tests of the collapse metrics against their plain formulas, without padding."""

import math

import pytest
import torch
from small_training import MODEL
from torch import Tensor

from model.network.weights import build
from model.training.validation import attention_entropy, encoder_cosine, probe


def real(lengths: list[int], longest: int) -> Tensor:
    return torch.arange(longest) < torch.tensor(lengths)[:, None]


def test_cosine_is_the_mean_over_all_pairs_of_positions() -> None:
    memory, lengths = torch.randn(3, 5, 8), [5, 1, 3]
    cosines = [
        float(torch.cosine_similarity(memory[b, i], memory[b, j], dim=0))
        for b, length in enumerate(lengths)
        for i in range(length)
        for j in range(length)
        if i != j
    ]
    expected = sum(cosines) / len(cosines)
    assert encoder_cosine(memory, real(lengths, 5))["encoder_cosine"] == pytest.approx(expected, abs=1e-6)


def test_parallel_positions_have_cosine_1_without_padding() -> None:
    memory = torch.randn(2, 1, 8) * torch.tensor([1.0, 0.1, 30.0])[:, None]
    memory[1, 2] = torch.randn(8)
    assert encoder_cosine(memory, real([3, 2], 3))["encoder_cosine"] == pytest.approx(1)
    assert encoder_cosine(memory, real([1, 1], 3)) == {}


def test_entropy_is_0_for_one_position_and_the_log_of_their_number_for_uniform_weights() -> None:
    weights = torch.zeros(2, 1, 4, 3, 6)
    weights[0, ..., 0] = 1
    weights[1, ..., :5] = 1 / 5
    weights[:, :, :, 2] = 1 / 6  # padding
    found = attention_entropy(weights, real([2], 3))
    expected = {"attention_entropy": math.log(5) / 2, "attention_entropy_1": 0, "attention_entropy_2": math.log(5)}
    assert found == pytest.approx(expected)


def test_a_batch_equals_the_mean_of_its_sentences() -> None:
    torch.manual_seed(0)
    model = build(MODEL, 24, 24).eval()
    sources, targets = [[5, 6, 7, 8, 2], [9, 2]], [[1, 4], [1, 7, 8]]
    together = probe(model, torch.tensor([sources[0], [9, 2, 0, 0, 0]]), torch.tensor([[1, 4, 0], targets[1]]))
    alone = [probe(model, torch.tensor([s]), torch.tensor([t])) for s, t in zip(sources, targets, strict=True)]
    assert together.keys() == alone[0].keys() == {"encoder_cosine", "attention_entropy", "attention_entropy_1"}
    for name in together:
        weights = (5 * 4, 2 * 1) if name == "encoder_cosine" else (2, 3)
        expected = sum(w * found[name] for w, found in zip(weights, alone, strict=True)) / sum(weights)
        assert together[name] == pytest.approx(expected, abs=1e-6), name
