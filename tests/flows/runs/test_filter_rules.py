"""Rules from a list, from changes and from a file; a wrong name is met with its neighbour."""

from flows.runs import RUNS
from flows.runs.overrides import override
from flows.runs.plain_values import RULES
from tasks.cleaning import filters, language_filters
from tasks.cleaning.filters import Distinct, Empty, Filter, Length, LengthRatio, NotIn

DEMO = RUNS["demo"]


def rules_of(*assignments: str) -> tuple[Filter, ...]:
    return override(DEMO, assignments).filters.rules


def test_every_rule_has_its_name() -> None:
    kinds = {
        name
        for module in (filters, language_filters)
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
