"""``--swap``: the run of the other direction, found by the name NAME-swapped."""

from dataclasses import replace
from pathlib import Path

import pytest

from flows.commands.options import RunOptions
from flows.runner.find_run import find_run, swapped_name
from flows.runs import RUNS
from flows.runs.languages import standard_filters
from flows.runs.reversal import monolingual_filters
from infra.errors import BadConfiguration
from tasks.cleaning.filters import Length, OverlongWord
from tasks.cleaning.language_filters import Language


def test_texts_languages_sets_and_rules_change_sides_and_all_else_stays() -> None:
    own = RUNS["multi30k-ende"]
    run = RunOptions("multi30k-ende", swap=True).request().resolve().run
    assert run == find_run("multi30k-ende-swapped")
    assert (run.name, run.corpus.source_language, run.corpus.target_language) == ("multi30k-ende-swapped", "de", "en")
    for swapped, pair in zip((*run.corpus.parts, *run.sets), (*own.corpus.parts, *own.sets), strict=True):
        assert swapped == replace(pair, source=pair.target, target=pair.source) != pair
    assert Language("de", "en") in run.filters.rules
    same = replace(run, name=own.name, about=own.about, corpus=own.corpus, sets=own.sets, filters=own.filters)
    assert same == own
    twice = find_run(swapped_name("multi30k-ende-swapped"))
    assert replace(twice, name=own.name, about=own.about) == own
    with pytest.raises(BadConfiguration, match="multi30k-ende-bt-swapped: synthetic.monolingual is 'de'"):
        find_run("multi30k-ende-bt-swapped")  # the text of its target language has no other side


def test_a_file_and_an_artifact_have_names_of_the_other_direction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text('extends = "demo"\n[training]\npeak = 0.25\n')
    run = find_run(swapped_name("mine.toml"))
    assert (run.name, run.corpus.source_language, run.training.peak) == ("mine-swapped", "de", 0.25)
    assert swapped_name("demo/score/test") == "demo-swapped/score/test"


def test_words_of_monolingual_text_are_measured_where_spaces_separate_them() -> None:
    for language, is_measured in (("de", True), ("ja", False), ("zh", False)):
        run = RUNS["multi30k-ende"]
        filters = standard_filters("en", language, Length(), ())
        run = replace(run, corpus=replace(run.corpus, target_language=language), filters=filters)
        assert (OverlongWord() in monolingual_filters(run).rules) == is_measured
