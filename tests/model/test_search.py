"""Beam search against brute force, greedy search by hand, and a network without a cache."""

import itertools
import math
import random
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from model.bpe import BOS, EOS, PAD
from model.config import Decoding, Model
from model.search import Hypothesis, Symbols, beam_search, length_penalty, top
from model.transformer import Transformer
from model.translator import CachedStep

CPU = torch.device("cpu")
SYMBOLS = Symbols(bos=BOS, eos=EOS, forbidden=(PAD, BOS))


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

    def select(self, rows_R: Tensor) -> None:
        self.seen = [self.seen[row] for row in rows_R.tolist()]
        self.rows_per_sentence = len(self.seen) // len(self.sentences)

    def keep(self, sentences_B: Tensor) -> None:
        self.sentences = [self.sentences[b] for b in sentences_B.tolist()]

    def log_p(self, sentence: int, prefix: tuple[int, ...]) -> list[float]:
        return torch.tensor(self.logits(sentence, prefix), dtype=torch.float64).log_softmax(0).tolist()


def search(table: Table, limits: Sequence[int], decoding: Decoding) -> list[Hypothesis]:
    return beam_search(table, limits, decoding, SYMBOLS, CPU)


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
    monkeypatch.setattr("model.search.Ledger.beaten", lambda *_: False)
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
    values, columns = top(torch.tensor(rows, dtype=torch.float32), count)
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
    found, columns = top(table, min(count, size))
    expected = table.sort(dim=1, descending=True, stable=True)
    assert torch.equal(found, expected.values[:, :count])
    assert torch.equal(columns, expected.indices[:, :count])


class UncachedStep:
    """The whole prefix again for every piece, one sentence at a time without padding."""

    def __init__(self, model: Transformer, sources: Sequence[Sequence[int]]) -> None:
        self.model, self.sources = model, list(sources)
        self.seen_RT = torch.empty(len(sources), 0, dtype=torch.int64)

    def advance(self, pieces_R: Tensor) -> Tensor:
        self.seen_RT = torch.cat([self.seen_RT, pieces_R[:, None]], dim=1)
        per_sentence = len(self.seen_RT) // len(self.sources)
        rows = [
            self.model.logits(self.model(torch.tensor([self.sources[r // per_sentence]]), seen_T[None])[:, -1])
            for r, seen_T in enumerate(self.seen_RT)
        ]
        return torch.cat(rows)

    def select(self, rows_R: Tensor) -> None:
        self.seen_RT = self.seen_RT[rows_R]

    def keep(self, sentences_B: Tensor) -> None:
        self.sources = [self.sources[b] for b in sentences_B.tolist()]


@pytest.mark.parametrize("positions", ["sinusoid", "learned"])
@pytest.mark.parametrize("beam", [1, 4])
def test_with_the_cache_the_network_writes_what_it_writes_without(positions: str, beam: int) -> None:
    torch.manual_seed(1)
    shape = Model(layers=2, d_model=32, d_ff=64, heads=2, d_k=16, d_v=16, positions=positions, init="normal")
    model = Transformer(shape, 40, 40).eval()
    draw = random.Random(beam)
    sources = [[*(draw.randrange(4, 40) for _ in range(n)), EOS] for n in (3, 9, 1, 6)]
    limits = [len(source) + 5 for source in sources]
    with torch.inference_mode():
        cached = beam_search(CachedStep(model, sources, CPU), limits, Decoding(beam), SYMBOLS, CPU)
        uncached = beam_search(UncachedStep(model, sources), limits, Decoding(beam), SYMBOLS, CPU)
    assert [h.pieces for h in cached] == [h.pieces for h in uncached]
    assert [h.score for h in cached] == pytest.approx([h.score for h in uncached], abs=1e-5)
    assert len({h.length for h in cached}) > 1
