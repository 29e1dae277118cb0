"""The filters of a run follow its languages."""

from flows.runs import languages
from tasks.cleaning.filters import Length


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
