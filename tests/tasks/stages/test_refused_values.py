"""A value that no stage can use is refused where the configuration is made, by the name of its field."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from tasks.cleaning.filters import Distinct, Filters, Length, LengthRatio, NotIn, OverlongWord, Script
from tasks.cleaning.language_filters import Language
from tasks.corpus.catalogue import Corpus, EvaluationSet, File, Part, Text
from tasks.stages.learn_bpe import Vocabulary
from tasks.stages.shard import Sharding

SHA256 = "0" * 64
TEXT = Text(File("a", sha256=SHA256))


@pytest.mark.parametrize(
    ("make", "values", "field"),
    [
        *((File, {"path": path, "sha256": SHA256}, "file.path") for path in ("", "/etc/passwd", "a/../../x", "a\\b")),
        (File, {"path": "a"}, "file.sha256"),
        (File, {"path": "a", "sha256": "abc"}, "file.sha256"),
        (File, {"path": "a", "md5": "X" * 32}, "file.md5"),
        (Text, {"file": File("a.en", sha256=SHA256), "column": "x"}, "text.column"),
        (Text, {"file": File("a.tmx.xz", sha256=SHA256)}, "text.column"),
        *(
            (Text, {"file": File(name, sha256=SHA256)}, f"text.member of {name}")
            for name in ("a.tgz", "a.ZIP", "a.Tar.GZ")
        ),
        (Text, {"file": File("a.tgz", sha256=SHA256), "member": "../a"}, "text.member"),
        *(
            (Part, {"name": name, "source": TEXT, "target": TEXT}, "part.name")
            for name in ("a:b", "", "a\nb", "x" * 101)
        ),
        *(
            (EvaluationSet, {"name": name, "source": TEXT, "target": TEXT}, "set.name")
            for name in ("a/b", "-a", "../a")
        ),
        (Corpus, {"name": "c", "source_language": "en", "target_language": "de", "parts": ()}, "corpus.parts"),
        (Length, {"min": 0}, "length.min"),
        (Length, {"min": 5, "max": 4}, "length.max"),
        (LengthRatio, {"max": 0.5}, "length_ratio.max"),
        (OverlongWord, {"max": 0}, "overlong_word.max"),
        (Script, {"source": "Klingon"}, "script.source"),
        (Script, {"max_other": 1.0}, "script.max_other"),
        (Language, {"source": "en", "target": "tlh"}, "language.target"),
        (Distinct, {"on": "both"}, "distinct.on"),
        (Filters, {"rules": (Length(), Length(2))}, "filters.rules"),
        (Filters, {"exclude": ("dev",)}, "filters.rules"),
        (Filters, {"rules": (NotIn(),)}, "filters.exclude"),
        (Vocabulary, {"size": 259}, "vocabulary.size"),
        (Vocabulary, {"min_frequency": 0}, "vocabulary.min_frequency"),
        (Vocabulary, {"tokens": "word"}, "vocabulary.tokens"),
        *((Vocabulary, {"scripts": (name,)}, "vocabulary.scripts") for name in ("Latn1", "Lu", "Alpha", "Latin}", "")),
        (Sharding, {"min_pieces": -1}, "sharding.min_pieces"),
        (Sharding, {"max_pieces": 0}, "sharding.max_pieces"),
        (Sharding, {"max_ratio": 0.5}, "sharding.max_ratio"),
    ],
)
def test_a_value_that_cannot_be_used_is_refused_by_its_field(
    make: Callable[..., Any], values: dict[str, Any], field: str
) -> None:
    with pytest.raises(ValueError, match=rf"^{re.escape(field)}\b"):
        make(**values)
