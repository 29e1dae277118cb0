"""Rules from a list, from changes and from a file; a wrong name is met with its neighbour."""

import re
from pathlib import Path

import pytest

from flows.runs import RUNS
from flows.runs.filter_rules import RULES
from flows.runs.overrides import override
from infra.errors import BadConfiguration
from tasks.cleaning import filters, language_id, web_filters
from tasks.cleaning.filters import Distinct, Empty, Filter, Length, LengthRatio, NotIn
from tasks.cleaning.web_filters import NumbersDiffer

DEMO = RUNS["demo"]


def rules_of(*assignments: str) -> tuple[Filter, ...]:
    return override(DEMO, assignments).filters.rules


def test_every_rule_has_its_name() -> None:
    modules = (filters, web_filters, language_id)
    kinds = {
        name
        for module in modules
        for name, kind in vars(module).items()
        if isinstance(kind, type) and kind.__module__ == module.__name__ and hasattr(kind, "keep")
    }
    assert set(RULES) == kinds - {"Filter", "CrossPairFilter"}


def test_a_list_replaces_the_rules_and_later_values_change_them() -> None:
    words = "filters.rules=Empty, Length(min=2, max=60),LengthRatio(max=3),Distinct(on=source,near=yes),NotIn"
    expected = (Empty(), Length(2, 60), LengthRatio(3.0), Distinct("source", True), NotIn())
    assert rules_of(words) == expected
    changed = rules_of("filters.rules.LengthRatio.max=1.5", words)
    assert changed == (*expected[:2], LengthRatio(1.5), *expected[3:]), "the list comes first, wherever it is written"
    assert rules_of("filters.rules=", "filters.exclude=") == ()


def test_changes_keep_the_other_rules_of_the_run() -> None:
    changed = rules_of("filters.rules=+NumbersDiffer,-Identical")
    kept = tuple(rule for rule in DEMO.filters.rules if type(rule).__name__ != "Identical")
    assert len(kept) == len(DEMO.filters.rules) - 1
    assert changed == (*kept, NumbersDiffer())


def test_a_file_gives_rules_in_its_order(tmp_path: Path) -> None:
    file = tmp_path / "rules.toml"
    file.write_text(
        '[[rules]]\nrule = "Length"\nmin = 2\nmax = 60\n[[rules]]\nrule = "Distinct"\nnear = true\n'
        '[[rules]]\nrule = "LengthRatio"\nmax = 3\n'
    )
    given = rules_of(f"filters.rules={file}", "filters.exclude=")
    assert given == (Length(2, 60), Distinct(near=True), LengthRatio(3.0))
    assert isinstance(given[2], LengthRatio)
    assert isinstance(given[2].max, float)
    assert given == rules_of(
        "filters.rules=Length(min=2,max=60),Distinct(near=true),LengthRatio(max=3)", "filters.exclude="
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("LenghtRatio", "unknown rule 'LenghtRatio' in filters.rules; did you mean LengthRatio"),
        ("Length(maks=3)", "unknown field 'maks' in filters.rules: Length; did you mean max"),
        ("Length(max=many)", "Length.max is 'many', allowed is a whole number"),
        ("Length(min=0)", "length.min is 0, allowed is a whole number of words of at least 1"),
        ("Language(source=en)", "Language has no target, allowed is Language(target=…)"),
        ("-Identicle", "unknown rule 'Identicle' in filters.rules; did you mean Identical"),
        ("Empty,+Distinct", "filters.rules has 'Empty', allowed is a file.toml"),
        ("Empty!", "filters.rules has 'Empty!', allowed is a file.toml"),
        ("+Distinct", "filters.rules is "),
        ("NotIn,Distinct,Empty,Empty", "each rule once"),
        ("nowhere.toml", "nowhere.toml cannot be read as TOML"),
    ],
)
def test_a_wrong_rule_is_one_sentence_that_names_the_nearest(text: str, message: str) -> None:
    with pytest.raises(BadConfiguration, match=re.escape(message)):
        rules_of(f"filters.rules={text}")
