"""Beam search against brute force and a simple greedy search."""

import itertools
import math
import random
from collections.abc import Sequence
from typing import Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from model.config import Decoding
from model.config.special_pieces import BOS, EOS, PAD
from model.decoding.beam_search import BeamEntry, Ensemble, SearchConstraints, beam_search, stable_topk
from model.decoding.translation import Hypothesis

CPU = torch.device("cpu")

CONSTRAINTS = st.lists(
    st.builds(
        lambda longest, shortest: SearchConstraints(longest, min(shortest, longest)),
        st.integers(1, 9),
        st.integers(1, 7),
    ),
    min_size=1,
    max_size=5,
)


class Table:
    """A decoder with random logits for every sentence and prefix; another ``seed`` is another model.

    ``coarse`` draws from few values, so that there are many ties. It also checks the rows that the search passes.
    """

    def __init__(
        self, sentences: Sequence[int], size: int, coarse: bool = False, eos_bonus: float = 0.0, seed: int = 0
    ) -> None:
        self.sentences, self.size, self.coarse, self.eos_bonus = list(sentences), size, coarse, eos_bonus
        self.seed = seed
        self.seen: list[tuple[int, ...]] = [()] * len(self.sentences)
        self.rows_per_sentence = 1
        self.steps = 0

    def logits(self, sentence: int, prefix: tuple[int, ...]) -> list[float]:
        draw = random.Random(repr((self.seed, sentence, prefix)))
        scores = [draw.randint(0, 2) if self.coarse else draw.gauss(0, 2) for _ in range(self.size)]
        scores[EOS] += self.eos_bonus
        return scores

    def advance(self, pieces_R: Tensor) -> Tensor:
        self.steps += 1
        assert len(pieces_R) == len(self.seen) == len(self.sentences) * self.rows_per_sentence
        self.seen = [(*seen, piece) for seen, piece in zip(self.seen, pieces_R.tolist(), strict=True)]
        rows = [self.logits(self.sentences[r // self.rows_per_sentence], seen) for r, seen in enumerate(self.seen)]
        return torch.tensor(rows, dtype=torch.float32)

    def reorder(self, rows_R: Tensor) -> None:
        self.seen = [self.seen[row] for row in rows_R.tolist()]
        self.rows_per_sentence = len(self.seen) // len(self.sentences)

    def keep_sentences(self, sentences_B: Tensor) -> None:
        self.sentences = [self.sentences[b] for b in sentences_B.tolist()]

    def log_p(self, sentence: int, prefix: tuple[int, ...]) -> list[float]:
        return torch.tensor(self.logits(sentence, prefix), dtype=torch.float64).log_softmax(0).tolist()


class MeanTable(Table):
    """The mean of several tables' probabilities, by the plain formula: the reference of ensembles."""

    def __init__(self, tables: Sequence[Table]) -> None:
        super().__init__(tables[0].sentences, tables[0].size)
        self.tables = tables

    def log_p(self, sentence: int, prefix: tuple[int, ...]) -> list[float]:
        columns = zip(*(table.log_p(sentence, prefix) for table in self.tables), strict=True)
        return [math.log(sum(map(math.exp, column)) / len(column)) for column in columns]


def search(table: Table, limits: Sequence[int], decoding: Decoding) -> list[Hypothesis]:
    return [best for [best] in beam_search(table, [SearchConstraints(limit) for limit in limits], decoding, CPU)]


def recomputed(table: Table, sentence: int, hypothesis: Hypothesis) -> float:
    written = [*hypothesis.pieces, *([EOS] if hypothesis.finished else [])]
    return sum(table.log_p(sentence, (BOS, *written[:t]))[piece] for t, piece in enumerate(written))


def penalty(length: int, decoding: Decoding) -> float:
    """The length penalty by its plain formula."""
    base = {"gnmt": (5 + length) / 6, "length": length}[decoding.length_penalty]
    return float(base**decoding.alpha)


def all_scores(
    table: Table, sentence: int, constraint: SearchConstraints, decoding: Decoding
) -> dict[tuple[int, ...], float]:
    """Return the score of every sequence that a constraint allows, by the plain formulas."""
    others = [piece for piece in range(table.size) if piece not in (PAD, BOS, EOS)]
    found = {}
    for length in range(constraint.max_length):
        for body in itertools.product(others, repeat=length):
            if len(body) + 1 >= constraint.min_length:
                log_p = recomputed(table, sentence, Hypothesis(body, len(body) + 1, 0, 0, finished=True))
                found[body] = log_p / penalty(length + 1, decoding)
    return found


@given(
    sentence=st.integers(0, 10**6),
    size=st.integers(5, 6),
    coarse=st.booleans(),
    longest=st.integers(1, 4),
    shortest=st.integers(1, 4),
    alpha=st.floats(0, 2),
    kind=st.sampled_from(["gnmt", "length"]),
    n_best=st.integers(1, 4),
)
@settings(max_examples=60)
def test_a_wide_beam_finds_the_best_of_all_allowed_sequences(
    sentence: int,
    size: int,
    coarse: bool,
    longest: int,
    shortest: int,
    alpha: float,
    kind: Literal["gnmt", "length"],
    n_best: int,
) -> None:
    constraint = SearchConstraints(longest, min(shortest, longest))
    decoding, table = Decoding(beam=90, alpha=alpha, length_penalty=kind), Table([sentence], size, coarse)
    expected = sorted(all_scores(table, sentence, constraint, decoding).values(), reverse=True)[:n_best]
    [found] = beam_search(table, [constraint], decoding, CPU, n_best)
    assert [h.score for h in found if h.finished] == pytest.approx(expected, abs=1e-5)
    for hypothesis in found:
        assert constraint.min_length <= hypothesis.length <= constraint.max_length
        assert hypothesis.finished or hypothesis.length == constraint.max_length


@given(
    sentence=st.integers(0, 10**6),
    models=st.integers(1, 3),
    longest=st.integers(1, 4),
    alpha=st.floats(0, 2),
    n_best=st.integers(1, 3),
)
@settings(max_examples=40)
def test_an_ensemble_finds_the_best_sequences_by_the_mean_of_probabilities(
    sentence: int, models: int, longest: int, alpha: float, n_best: int
) -> None:
    constraint = SearchConstraints(longest)
    decoding = Decoding(beam=40, alpha=alpha)
    tables = [Table([sentence], 5, seed=seed) for seed in range(models)]
    mean = MeanTable(tables)
    expected = sorted(all_scores(mean, sentence, constraint, decoding).values(), reverse=True)[:n_best]
    [found] = beam_search(Ensemble(tables), [constraint], decoding, CPU, n_best)
    assert [h.score for h in found if h.finished] == pytest.approx(expected, abs=1e-5)
    for hypothesis in found:
        assert hypothesis.log_probability == pytest.approx(recomputed(mean, sentence, hypothesis), abs=1e-5)


@given(sentence=st.integers(0, 10**6), limit=st.integers(1, 12), alpha=st.floats(0, 2), bonus=st.floats(-3, 3))
@settings(max_examples=40)
def test_beam_1_is_greedy_search(sentence: int, limit: int, alpha: float, bonus: float) -> None:
    table = Table([sentence], 9, eos_bonus=bonus)
    written: list[int] = []
    while len(written) < limit and EOS not in written:
        log_p = table.log_p(sentence, (BOS, *written))
        written.append(max((p for p in range(9) if p not in (PAD, BOS)), key=lambda p, log_p=log_p: log_p[p]))
    [found] = search(table, [limit], Decoding(beam=1, alpha=alpha))
    assert [*found.pieces, *([EOS] if found.finished else [])] == written


@given(
    constraints=CONSTRAINTS,
    beam=st.integers(2, 5),
    alpha=st.floats(0, 2),
    bonus=st.floats(-4, 3),
    coarse=st.booleans(),
    order=st.randoms(),
)
@settings(max_examples=60)
def test_a_sentence_has_the_same_result_alone_and_in_any_batch(
    constraints: list[SearchConstraints], beam: int, alpha: float, bonus: float, coarse: bool, order: random.Random
) -> None:
    def run(numbers: list[int]) -> list[list[Hypothesis]]:
        table = Table(numbers, 8, coarse, bonus)
        decoding = Decoding(beam, alpha)
        return beam_search(table, [constraints[n] for n in numbers], decoding, CPU, n_best=2)

    alone = [run([n])[0] for n in range(len(constraints))]
    numbers = list(range(len(constraints)))
    order.shuffle(numbers)
    assert run(numbers) == [alone[n] for n in numbers]


@given(
    constraints=CONSTRAINTS,
    beam=st.integers(1, 4),
    alpha=st.floats(0, 2),
    bonus=st.floats(-4, 4),
    n_best=st.integers(1, 7),
)
@settings(max_examples=60)
def test_all_that_finished_is_found_beyond_the_beam_and_the_beam_is_the_same(
    constraints: list[SearchConstraints], beam: int, alpha: float, bonus: float, n_best: int
) -> None:
    decoding = Decoding(beam, alpha)
    numbers = list(range(len(constraints)))

    def run(n_best: int, steps: list[tuple[int, list[BeamEntry]]]) -> list[list[Hypothesis]]:
        table = Table(numbers, 8, eos_bonus=bonus)
        observe = lambda number, entries: steps.append((number, list(entries)))  # noqa: E731
        return beam_search(table, constraints, decoding, CPU, n_best, observe)

    steps: list[tuple[int, list[BeamEntry]]] = []
    everything = run(decoding.most_hypotheses, steps)
    fewer = run(min(n_best, decoding.most_hypotheses), [])
    for number, (found, cut) in enumerate(zip(everything, fewer, strict=True)):
        assert found[: len(cut)] == cut
        assert len(found) >= min(beam, len(found))
        assert len(cut) == min(n_best, decoding.most_hypotheses, len(found))
        ended = [e.hypothesis for n, entries in steps if n == number for e in entries if e.hypothesis.finished]
        assert [h for h in found if h.finished] == sorted(ended, key=lambda h: -h.score)
        assert all(h.finished for h in found) or len(found) <= beam


@given(sentence=st.integers(0, 10**6), beam=st.integers(1, 4), bonus=st.floats(-4, 3), limit=st.integers(1, 6))
@settings(max_examples=40)
def test_each_step_extends_hypotheses_of_the_step_before(sentence: int, beam: int, bonus: float, limit: int) -> None:
    steps: list[list[BeamEntry]] = []
    table, decoding = Table([sentence], 8, eos_bonus=bonus), Decoding(beam, 0.6)
    constraint = [SearchConstraints(limit)]
    beam_search(table, constraint, decoding, CPU, 1, lambda _, entries: steps.append(list(entries)))
    assert len(steps) == table.steps
    before: list[Hypothesis] = [Hypothesis((), 0, 0.0, 0.0, finished=False)]
    for length, entries in enumerate(steps, start=1):
        found = [entry.hypothesis for entry in entries]
        assert found == sorted(found, key=lambda h: -h.log_probability)
        for entry, hypothesis in zip(entries, found, strict=True):
            parent = before[entry.parent]
            assert hypothesis.length == length
            assert hypothesis.pieces[: length - 1] == parent.pieces
            assert hypothesis.log_probability == pytest.approx(recomputed(table, sentence, hypothesis), abs=1e-5)
            assert hypothesis.score == pytest.approx(hypothesis.log_probability / penalty(length, Decoding()))
        before = [hypothesis for hypothesis in found if not hypothesis.finished]
        assert len(before) <= beam


def test_the_early_stop_saves_steps_and_never_changes_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> tuple[list[Hypothesis], int]:
        tables = [Table([n], 8, eos_bonus=1.0) for n in range(60)]
        return [search(table, [12], Decoding(6, 0.6))[0] for table in tables], sum(table.steps for table in tables)

    early, early_steps = run()
    monkeypatch.setattr("model.decoding.beam_search.BeamState.cannot_improve", lambda *_: False)
    patient, patient_steps = run()
    assert early_steps < patient_steps
    assert early == patient


def test_scores_that_are_nan_raise_an_error() -> None:
    table = Table([0], 8)
    table.eos_bonus = math.nan
    with pytest.raises(FloatingPointError, match="not finite"):
        search(table, [5], Decoding())


@given(
    seed=st.integers(0, 10**6), size=st.integers(1, 300), count=st.integers(1, 12), values=st.sampled_from([3, 10**6])
)
@settings(max_examples=60)
def test_top_k_takes_the_first_of_equal_values(seed: int, size: int, count: int, values: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    table = torch.randint(values, (3, size), generator=generator).float()
    found, columns = stable_topk(table, min(count, size))
    expected = table.sort(dim=1, descending=True, stable=True)
    assert np.array_equal(found, expected.values[:, :count].numpy())
    assert np.array_equal(columns, expected.indices[:, :count].numpy())
