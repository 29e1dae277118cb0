"""Example translations are chosen by chrF, and words that differ from the reference are marked."""

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from tasks.reporting.examples import mark_matches, translation_examples


def test_examples_are_ordered_by_chrf() -> None:
    ids = [f"x:{n}" for n in range(30)]
    chrf = [float(n * 7 % 30) for n in range(30)]
    table = pl.DataFrame(
        {"pair_id": ids, "source": "s", "reference": "r", "hypothesis": "h", "bleu": 1.0, "chrf": chrf}
    )
    chosen = translation_examples(table)
    assert [row["chrf"] for row in chosen["best"]] == [29, 28, 27, 26, 25]
    assert [row["chrf"] for row in chosen["worst"]] == [0, 1, 2, 3, 4]
    assert len({row["pair_id"] for row in chosen["random"]}) == 5
    assert translation_examples(table.reverse())["best"] == chosen["best"]
    assert len(translation_examples(table.head(2))["random"]) == 2


@given(st.lists(st.sampled_from("abcd"), max_size=8), st.lists(st.sampled_from("abcd"), max_size=8))
def test_comparison_keeps_every_word_and_marks_only_what_differs(ours: list[str], theirs: list[str]) -> None:
    runs = mark_matches(" ".join(ours), " ".join(theirs))
    assert [word for text, _ in runs for word in text.split()] == ours
    agreeing = [word for text, agrees in runs if agrees for word in text.split()]
    rest = iter(theirs)
    assert all(word in rest for word in agreeing)
    assert mark_matches(" ".join(ours), " ".join(ours)) == ([(" ".join(ours), True)] if ours else [])
