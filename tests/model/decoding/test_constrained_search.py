"""Lexical constraints: every finished hypothesis contains its phrases, against brute force and on a network."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.config import Decoding
from model.decoding.beam_search import SearchConstraints, beam_search
from model.decoding.constrained_search import Progress, constrained_beam_search
from tests.model.decoding.test_beam_search import CPU, SPECIAL_IDS, Table, all_scores, recomputed

PHRASES = st.lists(st.lists(st.integers(3, 6), min_size=1, max_size=3).map(tuple), min_size=1, max_size=3).map(tuple)


def contains(pieces: tuple[int, ...], phrase: tuple[int, ...]) -> bool:
    return any(pieces[start : start + len(phrase)] == phrase for start in range(len(pieces)))


@settings(max_examples=150)
@given(
    sentence=st.integers(0, 10**6),
    phrases=PHRASES,
    beam=st.integers(1, 6),
    prefix=st.lists(st.integers(3, 6), max_size=2),
    extra=st.integers(1, 6),
    coarse=st.booleans(),
)
def test_every_finished_hypothesis_contains_the_phrases(
    sentence: int, phrases: tuple[tuple[int, ...], ...], beam: int, prefix: list[int], extra: int, coarse: bool
) -> None:
    table = Table([sentence], 9, coarse)
    longest = len(prefix) + sum(map(len, phrases)) + extra
    constraint = SearchConstraints(longest, 1, tuple(prefix))
    decoding = Decoding(beam=beam, alpha=0.6)
    found = constrained_beam_search(table, phrases, constraint, decoding, SPECIAL_IDS, CPU, n_best=beam)
    assert found
    for hypothesis in found:
        assert hypothesis.pieces[: len(prefix)] == tuple(prefix)
        assert hypothesis.length <= longest
        assert hypothesis.log_probability == pytest.approx(recomputed(table, sentence, hypothesis), abs=1e-3)
        if hypothesis.finished:
            assert all(contains(hypothesis.pieces, phrase) for phrase in phrases)
    # Each step may write one more token of the phrases, so the best is complete by the greatest length.
    assert all(contains(found[0].pieces, phrase) for phrase in phrases)


@settings(max_examples=30)
@given(sentence=st.integers(0, 10**6), phrase=st.lists(st.integers(3, 4), min_size=1, max_size=2).map(tuple))
def test_a_wide_beam_finds_the_best_of_all_outputs_with_the_phrase(sentence: int, phrase: tuple[int, ...]) -> None:
    table, constraint, decoding = Table([sentence], 5), SearchConstraints(5), Decoding(beam=200, alpha=0.6)
    scores = all_scores(table, sentence, constraint, decoding)
    best = max(score for pieces, score in scores.items() if contains(pieces, phrase))
    [found] = constrained_beam_search(table, (phrase,), constraint, decoding, SPECIAL_IDS, CPU)
    assert found.finished
    assert found.score == pytest.approx(best, abs=1e-4)


@settings(max_examples=60)
@given(sentence=st.integers(0, 10**6), beam=st.integers(1, 5), longest=st.integers(1, 8), coarse=st.booleans())
def test_without_phrases_it_is_the_plain_search(sentence: int, beam: int, longest: int, coarse: bool) -> None:
    constraint, decoding = SearchConstraints(longest), Decoding(beam=beam, alpha=0.6)
    [plain] = beam_search(Table([sentence], 9, coarse), [constraint], decoding, SPECIAL_IDS, CPU, beam)
    found = constrained_beam_search(Table([sentence], 9, coarse), (), constraint, decoding, SPECIAL_IDS, CPU, beam)
    assert [each.pieces for each in found if each.finished] == [each.pieces for each in plain if each.finished]


def test_a_phrase_that_is_broken_off_begins_anew() -> None:
    progress = Progress(((5, 6, 7), (8,)))
    for token, tokens in ((5, 1), (6, 2), (5, 1), (6, 2), (7, 3), (4, 3)):
        progress = progress.after(token)
        assert progress.tokens == tokens
    assert (progress.wanted, progress.complete) == ([8], False)
    assert progress.after(8).complete


def test_impossible_phrases_are_named() -> None:
    for phrases, decoding, what in (
        (((),), Decoding(), "phrase is"),
        (((SPECIAL_IDS.eos,),), Decoding(), "phrase is"),
        (((5,),), Decoding(beta=0.1), "decoding.beta is 0.1, allowed is 0 with words"),
    ):
        with pytest.raises(ValueError, match=what):
            constrained_beam_search(Table([1], 9), phrases, SearchConstraints(4), decoding, SPECIAL_IDS, CPU)
