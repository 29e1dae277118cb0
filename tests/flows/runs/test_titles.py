"""Names of runs are the settings in words."""

import pytest

from flows.runs.titles import run_title


@pytest.mark.parametrize(
    ("overrides", "title"),
    [
        ((), "multi30k-ende"),
        (("model.p_drop=0.2", "training.seed=3"), "multi30k-ende · p_drop 0.2 · seed 3"),
        (("filters.rules.Length.max=70",), "multi30k-ende · Length.max 70"),
        (("filters.rules=+NumbersDiffer,-Identical",), "multi30k-ende · rules +NumbersDiffer,-Identical"),
    ],
)
def test_a_title_names_the_run_and_its_settings(overrides: tuple[str, ...], title: str) -> None:
    assert run_title("multi30k-ende", overrides) == title
