"""The number behind a verdict is on the side of the limit that the rule says."""

import re

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tasks.cleaning.filters import Empty, Filter, Length, LengthRatio, NoLetters, OverlongWord, Script
from tasks.cleaning.rejections import filter_evidence

WORDS = st.lists(st.text("aß1 ж\ufffd", max_size=7), max_size=12).map(" ".join)


def pair_of(source: str, target: str) -> pl.DataFrame:
    return pl.DataFrame({"source": [source], "target": [target]})


def numbers(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"\d+(?:\.\d+)?", text)]


@pytest.mark.parametrize(
    ("rule", "within"),
    [
        (NoLetters(), lambda found: min(found) > 0),
        (Length(2, 6, max_chars=30), lambda found: all(2 <= n <= 6 for n in found[:2]) and max(found[2:]) <= 30),
        (LengthRatio(2.0), lambda found: found[0] <= 2),
        (OverlongWord(4), lambda found: max(found) <= 4),
        (Script(max_other=0.25), lambda found: max(found) <= 0.25),
        (Empty(), lambda found: min(found) > 0),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
@settings(max_examples=40)
@given(source=WORDS, target=WORDS)
@example(source="  ", target="a")
def test_what_is_measured_agrees_with_the_rule(rule: Filter, within: object, source: str, target: str) -> None:
    pair = pair_of(source, target)
    found, _ = filter_evidence(rule, pair)
    assert callable(within)
    assert within(numbers(found)) == pair.select(rule.keep()).item()


@pytest.mark.parametrize(
    ("rule", "source"), [(Script(max_other=0.3), "я" * 31 + "a" * 72), (LengthRatio(2.25), "a " * 451)]
)
def test_a_value_just_beyond_a_limit_is_not_rounded_to_it(rule: Script | LengthRatio, source: str) -> None:
    pair = pair_of(source, "b " * 200)
    found, allowed = filter_evidence(rule, pair)
    assert not pair.select(rule.keep()).item()
    assert max(numbers(found)) > numbers(allowed)[0]
