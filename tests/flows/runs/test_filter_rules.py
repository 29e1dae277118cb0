"""The rules of a run: by its languages, from a list and from changes."""

from flows.runs import RUNS, languages
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
    assert set(RULES) == kinds - {"Filter"}


def test_a_list_replaces_the_rules_and_later_values_change_them() -> None:
    words = "filters.rules=Empty, Length(min=2, max=60),LengthRatio(max=3),Distinct(on=source,near=yes),NotIn"
    expected = (Empty(), Length(2, 60), LengthRatio(3.0), Distinct("source", True), NotIn())
    assert rules_of(words) == expected
    changed = rules_of("filters.rules.LengthRatio.max=1.5", words)
    assert changed == (*expected[:2], LengthRatio(1.5), *expected[3:]), "the list comes first, wherever it is written"
    assert rules_of("filters.rules=", "filters.exclude=") == ()


def test_filters_follow_the_languages() -> None:
    names = {
        each: [rule.name for rule in languages.standard_filters("en", each, Length(), ()).rules]
        for each in ("ru", "ja", "nl", "qq")
    }
    assert "script" in names["ru"]
    assert "language" not in names["ru"], "its common words are not known"
    assert not {"length_ratio", "overlong_word", "script"} & set(names["ja"])
    assert "script" not in names["qq"]
    russian = languages.standard_filters("en", "ru", Length(), ()).rules
    assert [rule.target for rule in russian if isinstance(rule, languages.Script)] == ["Cyrillic"]
