"""Each rule for noisy text removes what it says, by the plain meaning of its words, and nothing else."""

import collections
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_text import kept

from tasks.cleaning.filters import Distinct, Filter
from tasks.cleaning.web_filters import (
    AddressesDiffer,
    Alphabet,
    ManyPartners,
    Markup,
    NumbersDiffer,
    RepeatedWords,
)

LINES = st.lists(st.sampled_from(["a", "B", "b", "1", "27", "-", "www.a.de", "<i>"]), max_size=9).map(" ".join)
PAIRS = st.lists(st.tuples(LINES, LINES), min_size=1, max_size=12)


@pytest.mark.parametrize(
    ("rule", "bad", "good"),
    [
        (RepeatedWords(2, 3), ("buy now Buy now buy now", "x"), ("buy now buy now or buy now", "ja ja ja ja")),
        (RepeatedWords(1, 3), ("x", "nein Nein nein"), ("no no", "nein, nein nein")),
        (NumbersDiffer(), ("in 1998", "im Jahr 1989"), ("1,500.5 of 7", "7 von 1.500,5")),
        (NumbersDiffer(), ("two of 3", "zwei"), ("two", "zwei")),
        (AddressesDiffer(), ("see www.a.com", "siehe hier"), ("mail a@b.de", "Post an b@a.de")),
        (Markup(), ("<b>x", "x"), ("a < b and c > d", "R&D; <3")),
        (Markup(), ("x", "A&nbsp;B"), ("AT&T", "a & b; c")),
        (Markup(), ("x", "<a href='x'>B</a>"), ("x", "<= y =>")),
        (Alphabet(), ("12 34 56 a", "Wort"), ("12 word", "Wort 12")),
        (Alphabet(0.5, 0.9), ("word", "Wort 12"), ("word 12", "Wort")),
    ],
)
def test_each_rule_removes_what_it_names(rule: Filter, bad: tuple[str, str], good: tuple[str, str]) -> None:
    assert kept(rule, [bad, good]) == [False, True]


@given(pairs=PAIRS, n=st.integers(1, 3), times=st.integers(2, 4))
@settings(max_examples=60)
def test_repeats_are_those_that_a_search_finds(pairs: list[tuple[str, str]], n: int, times: int) -> None:
    def repeats(line: str) -> bool:
        words = line.lower().split()
        starts = range(len(words) - n * times + 1)
        return any(words[s : s + n] * times == words[s : s + n * times] for s in starts)

    assert kept(RepeatedWords(n, times), pairs) == [not any(map(repeats, pair)) for pair in pairs]


@given(pairs=PAIRS)
@settings(max_examples=60)
def test_numbers_are_compared_with_how_often_they_stand(pairs: list[tuple[str, str]]) -> None:
    numbers = [[collections.Counter(re.findall("[0-9]+", side)) for side in pair] for pair in pairs]
    assert kept(NumbersDiffer(), pairs) == [source == target for source, target in numbers]


@given(pairs=PAIRS, most=st.integers(1, 3), on=st.sampled_from(["source", "target"]))
@settings(max_examples=60)
def test_partners_are_counted_over_all_pairs(pairs: list[tuple[str, str]], most: int, on: str) -> None:
    this = ("source", "target").index(on)
    partners = [len({pair[1 - this] for pair in pairs if pair[this] == each[this]}) for each in pairs]
    assert kept(ManyPartners(on, most), pairs) == [count <= most for count in partners]  # type: ignore[arg-type]


def test_near_repeats_differ_in_nothing_but_case_marks_and_space() -> None:
    pairs = [
        ("A dog, here.", "Ja!"),
        ("a  DOG here", "ja"),
        ("A dog 1 here", "Ja"),
        ("...", "?"),
        ("…", "?"),
        ("...", "?"),
    ]
    assert kept(Distinct(near=True), pairs) == [True, False, True, True, True, False]
    assert kept(Distinct("target", near=True), pairs) == [True, False, False, True, False, False]
    assert Distinct("source", near=True).name == "near_distinct_source"
