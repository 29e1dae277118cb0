"""Beam search against brute force, greedy search by hand, and a network without a cache."""

import itertools
import math
import random
from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from model.config import Decoding, Model
from model.config.special_pieces import BOS, EOS, PAD
from model.decoding.beam_search import (
    Ensemble,
    Hypothesis,
    SearchConstraints,
    SpecialIds,
    beam_search,
    length_penalty,
    stable_topk,
)
from model.decoding.translator import CachedDecoder
from model.network.transformer import Transformer

CPU = torch.device("cpu")
SPECIAL_IDS = SpecialIds(bos=BOS, eos=EOS, forbidden=(PAD, BOS))

WISHES = st.lists(
    st.builds(
        lambda most, least, prefix: SearchConstraints(most, min(least, most), tuple(prefix[: most - 1])),
        st.integers(1, 7),
        st.integers(1, 7),
        st.lists(st.integers(3, 7), max_size=4),
    ),
    min_size=1,
    max_size=5,
)


class Table:
    """A toy: the scores of what may follow are drawn anew for every sentence and prefix.

    ``coarse`` draws from few values, so that ties abound. It also checks what the search promises of its rows.
    """

    def __init__(self, sentences: Sequence[int], size: int, coarse: bool = False, eos_bonus: float = 0.0) -> None:
        self.sentences, self.size, self.coarse, self.eos_bonus = list(sentences), size, coarse, eos_bonus
        self.seen: list[tuple[int, ...]] = [()] * len(self.sentences)
        self.rows_per_sentence = 1
        self.steps = 0

    def logits(self, sentence: int, prefix: tuple[int, ...]) -> list[float]:
        draw = random.Random(repr((sentence, prefix)))
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

    def attention(self) -> Tensor:
        rows = [looks(self.sentences[r // self.rows_per_sentence], seen) for r, seen in enumerate(self.seen)]
        return torch.tensor(rows, dtype=torch.float64)

    def log_p(self, sentence: int, prefix: tuple[int, ...]) -> list[float]:
        return torch.tensor(self.logits(sentence, prefix), dtype=torch.float64).log_softmax(0).tolist()


def looks(sentence: int, prefix: tuple[int, ...]) -> list[float]:
    """What the last piece of a prefix looks at: three source positions, the third of an even sentence padding."""
    draw = random.Random(repr((sentence, prefix, "attention")))
    weights = [draw.random() ** 3 for _ in range(3 if sentence % 2 else 2)]
    return [*(weight / sum(weights) for weight in weights), *([] if sentence % 2 else [1.0])]


def search(table: Table, limits: Sequence[int], decoding: Decoding) -> list[Hypothesis]:
    return [
        best
        for [best] in beam_search(table, [SearchConstraints(limit) for limit in limits], decoding, SPECIAL_IDS, CPU)
    ]


def recomputed(table: Table, sentence: int, hypothesis: Hypothesis) -> float:
    written = [*hypothesis.pieces, *([EOS] if hypothesis.finished else [])]
    return sum(table.log_p(sentence, (BOS, *written[:t]))[piece] for t, piece in enumerate(written))


@given(
    sentence=st.integers(0, 10**6),
    size=st.integers(5, 6),
    limit=st.integers(1, 4),
    alpha=st.floats(0, 2),
    coarse=st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_a_wide_beam_finds_the_best_of_all_sequences(
    sentence: int, size: int, limit: int, alpha: float, coarse: bool
) -> None:
    table = Table([sentence], size, coarse)
    others = [piece for piece in range(size) if piece not in (PAD, BOS, EOS)]
    best = -math.inf
    for length in range(limit):
        for body in itertools.product(others, repeat=length):
            log_p = recomputed(table, sentence, Hypothesis(body, 0, 0, finished=True))
            best = max(best, log_p / length_penalty(length + 1, alpha))
    [found] = search(table, [limit], Decoding(beam=len(others) ** limit + 1, alpha=alpha))
    assert found.finished
    assert found.score == pytest.approx(best, abs=1e-5)


def all_scores(
    table: Table, sentence: int, constraint: SearchConstraints, decoding: Decoding
) -> dict[tuple[int, ...], float]:
    """The score of every sequence that a constraint allows, by the plain formulas."""
    others = [piece for piece in range(table.size) if piece not in (PAD, BOS, EOS)]
    found = {}
    for length in range(len(constraint.prefix), constraint.max_length):
        for rest in itertools.product(others, repeat=length - len(constraint.prefix)):
            body = (*constraint.prefix, *rest)
            if len(body) + 1 >= constraint.min_length:
                log_p = recomputed(table, sentence, Hypothesis(body, 0, 0, finished=True))
                steps = [looks(sentence, (BOS, *body[:t])) for t in range(len(body) + 1)]
                covered = sum(math.log(min(1.0, sum(column))) for column in zip(*steps, strict=True))
                found[body] = log_p / length_penalty(length + 1, decoding.alpha) + decoding.beta * covered
    return found


@given(
    sentence=st.integers(0, 10**6),
    most=st.integers(1, 4),
    least=st.integers(1, 4),
    prefix=st.lists(st.integers(3, 4), max_size=3),
    alpha=st.floats(0, 2),
    beta=st.sampled_from([0.0, 0.3, 2.0]),
    n_best=st.integers(1, 4),
)
@settings(max_examples=60, deadline=None)
def test_a_wide_beam_finds_the_best_that_a_wish_allows(
    sentence: int, most: int, least: int, prefix: list[int], alpha: float, beta: float, n_best: int
) -> None:
    constraint = SearchConstraints(most, min(least, most), tuple(prefix[: most - 1]))
    decoding, table = Decoding(beam=40, alpha=alpha, beta=beta), Table([sentence], 5)
    expected = sorted(all_scores(table, sentence, constraint, decoding).values(), reverse=True)[:n_best]
    [found] = beam_search(table, [constraint], decoding, SPECIAL_IDS, CPU, n_best)
    assert [h.score for h in found if h.finished] == pytest.approx(expected, abs=1e-5)
    for hypothesis in found:
        assert hypothesis.pieces[: len(constraint.prefix)] == constraint.prefix
        assert constraint.min_length <= hypothesis.length <= constraint.max_length
        assert hypothesis.finished or hypothesis.length == constraint.max_length


@given(
    constraints=WISHES,
    beam=st.integers(2, 5),
    beta=st.sampled_from([0.0, 0.4]),
)
@settings(max_examples=60, deadline=None)
def test_each_sentence_has_its_own_wish_whatever_is_beside_it(
    constraints: list[SearchConstraints], beam: int, beta: float
) -> None:
    decoding = Decoding(beam, beta=beta)
    # All sentences have three source positions, or none would be beside another in a batch.
    numbers = [2 * n + 1 for n in range(len(constraints))]
    alone = [
        beam_search(Table([n], 8), [constraint], decoding, SPECIAL_IDS, CPU, n_best=2)[0]
        for n, constraint in zip(numbers, constraints, strict=True)
    ]
    assert beam_search(Table(numbers, 8), constraints, decoding, SPECIAL_IDS, CPU, n_best=2) == alone


def test_several_models_together_are_the_mean_of_their_probabilities() -> None:
    class Other(Table):
        def logits(self, sentence: int, prefix: tuple[int, ...]) -> list[float]:
            return super().logits(-sentence, prefix)

    decoding = Decoding(beam=40, alpha=0.8)
    tables = [Table([7], 5), Other([7], 5)]
    [[found]] = beam_search(Ensemble(tables), [SearchConstraints(4)], decoding, SPECIAL_IDS, CPU)
    written = [*found.pieces, EOS]
    expected = 0.0
    for t, piece in enumerate(written):
        p = [math.exp(table.log_p(7, (BOS, *written[:t]))[piece]) for table in tables]
        expected += math.log(sum(p) / 2)
    assert found.log_probability == pytest.approx(expected, abs=1e-5)
    alone = search(Table([7, 8], 8), [6, 9], Decoding(3))
    twice = beam_search(
        Ensemble([Table([7, 8], 8), Table([7, 8], 8)]),
        [SearchConstraints(6), SearchConstraints(9)],
        Decoding(3),
        SPECIAL_IDS,
        CPU,
    )
    assert [h.pieces for [h] in twice] == [h.pieces for h in alone]
    assert [h.score for [h] in twice] == pytest.approx([h.score for h in alone], abs=1e-5)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: SearchConstraints(0), "max_length is 0"),
        (lambda: SearchConstraints(3, 4), "min_length is 4"),
        (lambda: SearchConstraints(2, 1, (5, 6)), "prefix is"),
        (
            lambda: beam_search(Table([0], 8), [SearchConstraints(5, 1, (EOS,))], Decoding(), SPECIAL_IDS, CPU),
            "prefix is",
        ),
        (
            lambda: beam_search(Table([0], 8), [SearchConstraints(5)], Decoding(2), SPECIAL_IDS, CPU, n_best=3),
            "n_best is 3",
        ),
    ],
)
def test_a_wish_that_cannot_be_is_named(make: Callable[[], object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


@given(sentence=st.integers(0, 10**6), limit=st.integers(1, 12), alpha=st.floats(0, 2), bonus=st.floats(-3, 3))
@settings(max_examples=40, deadline=None)
def test_beam_1_is_greedy_search(sentence: int, limit: int, alpha: float, bonus: float) -> None:
    table = Table([sentence], 9, eos_bonus=bonus)
    written: list[int] = []
    while len(written) < limit and EOS not in written:
        log_p = table.log_p(sentence, (BOS, *written))
        written.append(max((p for p in range(9) if p not in (PAD, BOS)), key=lambda p, log_p=log_p: log_p[p]))
    [found] = search(table, [limit], Decoding(beam=1, alpha=alpha))
    assert [*found.pieces, *([EOS] if found.finished else [])] == written


@given(
    limits=st.lists(st.integers(1, 9), min_size=1, max_size=5),
    beam=st.integers(1, 5),
    alpha=st.floats(0, 2),
    bonus=st.floats(-4, 3),
    coarse=st.booleans(),
    order=st.randoms(),
)
@settings(max_examples=60, deadline=None)
def test_a_sentence_comes_out_the_same_alone_and_in_any_batch(
    limits: list[int], beam: int, alpha: float, bonus: float, coarse: bool, order: random.Random
) -> None:
    decoding = Decoding(beam, alpha)
    alone = [search(Table([n], 8, coarse, bonus), [limit], decoding)[0] for n, limit in enumerate(limits)]
    numbers = list(range(len(limits)))
    order.shuffle(numbers)
    together = search(Table(numbers, 8, coarse, bonus), [limits[n] for n in numbers], decoding)
    assert together == [alone[n] for n in numbers]


@given(
    sentence=st.integers(0, 10**6),
    limit=st.integers(1, 9),
    beam=st.integers(1, 4),
    alpha=st.floats(0, 2),
    bonus=st.floats(-6, 3),
)
@settings(max_examples=60, deadline=None)
def test_scores_are_those_of_the_pieces_and_lengths_stay_within_limits(
    sentence: int, limit: int, beam: int, alpha: float, bonus: float
) -> None:
    table = Table([sentence], 8, eos_bonus=bonus)
    [found] = search(table, [limit], Decoding(beam, alpha))
    assert found.length <= limit
    assert found.finished or found.length == limit
    assert not {PAD, BOS, EOS} & set(found.pieces)
    assert found.log_probability == pytest.approx(recomputed(table, sentence, found), abs=1e-5)
    assert found.score == pytest.approx(found.log_probability / ((5 + found.length) / 6) ** alpha)


def test_the_early_stop_spares_steps_and_never_changes_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> tuple[list[Hypothesis], int]:
        tables = [Table([n], 8, eos_bonus=1.0) for n in range(60)]
        return [search(table, [12], Decoding(6, 0.6))[0] for table in tables], sum(table.steps for table in tables)

    early, early_steps = run()
    monkeypatch.setattr("model.decoding.beam_search.BeamState.cannot_improve", lambda *_: False)
    patient, patient_steps = run()
    assert early_steps < patient_steps
    assert early == patient


def test_scores_that_are_no_numbers_are_an_error_and_not_a_translation() -> None:
    table = Table([0], 8)
    table.eos_bonus = math.nan
    with pytest.raises(FloatingPointError, match="not finite"):
        search(table, [5], Decoding())


@given(
    rows=st.lists(st.lists(st.integers(0, 3), min_size=7, max_size=7), min_size=1, max_size=4), count=st.integers(1, 7)
)
@settings(max_examples=60, deadline=None)
def test_of_equal_values_the_first_are_taken(rows: list[list[int]], count: int) -> None:
    values, columns = stable_topk(torch.tensor(rows, dtype=torch.float32), count)
    expected = [sorted(range(7), key=lambda column, row=row: (-row[column], column))[:count] for row in rows]
    assert columns.tolist() == expected
    assert values.tolist() == [[row[column] for column in best] for row, best in zip(rows, expected, strict=True)]


@given(
    seed=st.integers(0, 10**6), size=st.integers(1, 300), count=st.integers(1, 12), values=st.sampled_from([3, 10**6])
)
@settings(max_examples=60, deadline=None)
def test_the_greatest_are_found_among_many(seed: int, size: int, count: int, values: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    table = torch.randint(values, (3, size), generator=generator).float()
    found, columns = stable_topk(table, min(count, size))
    expected = table.sort(dim=1, descending=True, stable=True)
    assert torch.equal(found, expected.values[:, :count])
    assert torch.equal(columns, expected.indices[:, :count])


class UncachedStep:
    """The whole prefix again for every piece, one sentence at a time without padding."""

    def __init__(self, model: Transformer, sources: Sequence[Sequence[int]]) -> None:
        self.model, self.sources, self.longest = model, list(sources), max(map(len, sources))
        self.seen_RT = torch.empty(len(sources), 0, dtype=torch.int64)

    def advance(self, pieces_R: Tensor) -> Tensor:
        self.seen_RT = torch.cat([self.seen_RT, pieces_R[:, None]], dim=1)
        per_sentence = len(self.seen_RT) // len(self.sources)
        rows = [
            self.model.logits(self.model(torch.tensor([self.sources[r // per_sentence]]), seen_T[None])[:, -1])
            for r, seen_T in enumerate(self.seen_RT)
        ]
        return torch.cat(rows)

    def reorder(self, rows_R: Tensor) -> None:
        self.seen_RT = self.seen_RT[rows_R]

    def keep_sentences(self, sentences_B: Tensor) -> None:
        self.sources = [self.sources[b] for b in sentences_B.tolist()]

    def attention(self) -> Tensor:
        per_sentence = len(self.seen_RT) // len(self.sources)
        rows = []
        for r, seen_T in enumerate(self.seen_RT):
            source = torch.tensor([self.sources[r // per_sentence]])
            weights_S = self.model.cross_attention(source, seen_T[None])[:, 0, :, -1].mean((0, 1))
            rows.append(torch.cat([weights_S, torch.ones(self.longest - len(weights_S))]))
        return torch.stack(rows)


@pytest.mark.parametrize("positions", ["sinusoid", "learned"])
@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_with_the_cache_the_network_writes_what_it_writes_without(positions: str, beam: int, beta: float) -> None:
    torch.manual_seed(1)
    shape = Model(layers=2, d_model=32, d_ff=64, heads=2, d_k=16, d_v=16, positions=positions, init="normal")
    model = Transformer(shape, 40, 40).eval()
    draw = random.Random(beam)
    sources = [[*(draw.randrange(4, 40) for _ in range(n)), EOS] for n in (3, 9, 1, 6)]
    limits = [len(source) + 5 for source in sources]
    with torch.inference_mode():
        steps = (CachedDecoder(model, sources, CPU, record_attention=True), UncachedStep(model, sources))
        constraints = [SearchConstraints(limit) for limit in limits]
        cached, uncached = (
            [best for [best] in beam_search(step, constraints, Decoding(beam, beta=beta), SPECIAL_IDS, CPU)]
            for step in steps
        )
    assert [h.pieces for h in cached] == [h.pieces for h in uncached]
    assert [h.score for h in cached] == pytest.approx([h.score for h in uncached], abs=1e-5)
    assert len({h.length for h in cached}) > 1
