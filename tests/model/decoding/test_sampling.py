"""Sampling follows the model's probabilities and the constraints, whatever the batch."""

import math
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model.config import Decoding, Sampling
from model.config.special_pieces import BOS, EOS, PAD
from model.decoding.beam_search import SearchConstraints
from model.decoding.sampling import draw, sample
from model.decoding.translation import Hypothesis
from tests.model.decoding.test_beam_search import CONSTRAINTS, CPU, Table, recomputed, search


def drawn(numbers: list[int], constraints: list[SearchConstraints], sampling: Sampling) -> list[Hypothesis]:
    return sample(Table(numbers, 8, eos_bonus=1.0), constraints, sampling, CPU, numbers)


def test_tokens_are_drawn_by_their_probability() -> None:
    log_p = torch.tensor([0.5, 0.3, 0.15, 0.05]).double().log()
    count = 20_000
    chances = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    for sampling, expected in (
        (Sampling(), [0.5, 0.3, 0.15, 0.05]),
        (Sampling(top_k=2), [0.625, 0.375, 0, 0]),
        (Sampling(top_p=0.75), [0.625, 0.375, 0, 0]),
        (Sampling(top_p=0.81), [0.5 / 0.95, 0.3 / 0.95, 0.15 / 0.95, 0]),
        (Sampling(temperature=0.5), [p * p / 0.365 for p in (0.5, 0.3, 0.15, 0.05)]),
    ):
        pieces = draw(log_p.expand(count, -1), chances, sampling)
        shares = pieces.bincount(minlength=4) / count
        assert shares.tolist() == pytest.approx(expected, abs=1e-3)


def test_random_numbers_are_spread_evenly_over_sentences() -> None:
    numbers = list(range(3_000))
    table = Table([5], 8)
    first = Counter(
        h.pieces[:1] or (EOS,)
        for n in numbers
        for h in sample(Table([5], 8), [SearchConstraints(1)], Sampling(), CPU, [n])
    )
    allowed = [p for p in range(8) if p not in (PAD, BOS)]
    weights = [math.exp(table.log_p(5, (BOS,))[p]) for p in allowed]
    for piece, weight in zip(allowed, weights, strict=True):
        share = weight / sum(weights)
        deviation = math.sqrt(share * (1 - share) / len(numbers))
        assert abs(first[(piece,)] / len(numbers) - share) < 5 * deviation


@given(st.integers(0, 10**6), st.integers(1, 9), st.sampled_from([Sampling(top_k=1), Sampling(temperature=1e-6)]))
@settings(max_examples=40)
def test_top_1_and_temperature_near_0_are_greedy_search(sentence: int, most: int, sampling: Sampling) -> None:
    [found] = drawn([sentence], [SearchConstraints(most)], sampling)
    [greedy] = search(Table([sentence], 8, eos_bonus=1.0), [most], Decoding(beam=1))
    assert (found.pieces, found.finished) == (greedy.pieces, greedy.finished)


@given(
    constraints=CONSTRAINTS,
    seed=st.integers(0, 100),
)
@settings(max_examples=60)
def test_constraints_hold_and_the_batch_does_not_matter(constraints: list[SearchConstraints], seed: int) -> None:
    sampling, numbers = Sampling(temperature=2.0, top_p=0.9, seed=seed), list(range(len(constraints)))
    together = drawn(numbers, constraints, sampling)
    assert together == [
        drawn([n], [constraint], sampling)[0] for n, constraint in zip(numbers, constraints, strict=True)
    ]
    for number, constraint, found in zip(numbers, constraints, together, strict=True):
        assert found.length <= constraint.max_length
        assert not found.finished or found.length >= constraint.min_length
        assert not {PAD, BOS, EOS} & set(found.pieces)
        table = Table([number], 8, eos_bonus=1.0)
        assert found.log_probability == pytest.approx(recomputed(table, number, found), abs=1e-5)
