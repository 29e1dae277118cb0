"""Runs in TOML are the runs that they were written from, and mistakes in a file are named."""

import tomllib
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_roots import record

from flows.runner.find_run import find_run
from flows.runner.recorded_runs import findable
from flows.runs import DEMO, MULTI30K_ENDE, MULTI30K_ENFR, RUNS
from flows.runs.overrides import override
from flows.runs.plain_values import from_plain
from flows.runs.run import Run
from flows.runs.toml_runs import toml_of
from infra.errors import BadConfiguration
from tasks.corpus.catalogue import Text
from tasks.corpus.noise import Augment
from tasks.engine.keys import canonical
from tasks.engine.limits import Limits

WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


def again(text: str) -> object:
    return from_plain(Run, tomllib.loads(text), "run")


@pytest.mark.parametrize("name", RUNS)
def test_every_run_comes_back(name: str) -> None:
    assert again(toml_of(RUNS[name])) == RUNS[name]


@given(WORDS, WORDS, st.floats(0, 0.9), st.integers(1, 2**31 - 1), st.lists(st.integers(0, 9), min_size=2))
def test_any_value_comes_back(about: str, column: str, smoothing: float, seed: int, seeds: list[int]) -> None:
    text = Text(replace(DEMO.corpus.parts[0].source.file, path="own/a.tsv"), column=column or "1")
    part = replace(DEMO.corpus.parts[0], source=text)
    run = replace(
        DEMO,
        about=about,
        corpus=replace(DEMO.corpus, parts=(part,)),
        training=replace(DEMO.training, label_smoothing=smoothing, seed=seed),
        decoding=replace(DEMO.decoding, ensemble=tuple(dict.fromkeys((seed, seed - 1, *seeds)))),
    )
    assert again(toml_of(run)) == run


def test_what_differs_is_enough(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    for name in RUNS:
        file.write_text(toml_of(RUNS[name], MULTI30K_ENDE))
        assert find_run(f"{file}") == RUNS[name], name
    assert "[model]" not in toml_of(MULTI30K_ENFR, MULTI30K_ENDE)


def test_sets_are_named_with_their_noise(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('extends = "demo"\nsets = ["test", "dev", "test+caps"]\n[augment]\ntypos = 0.1\n')
    run = find_run(f"{file}")
    dev, test = DEMO.sets
    assert run.sets == (test, dev, replace(test, name="test+caps"))
    assert run.augment == Augment(typos=0.1)
    added = override(DEMO, ["sets=+test+caps", "sets=+dev+lower+typos", "expect=score.test+caps.bleu_loss <= 5"])
    assert added.sets == (dev, test, replace(test, name="test+caps"), replace(dev, name="dev+lower+typos"))
    assert Limits.parse(added.expect).limits[0].item == "test+caps"
    assert added.sets[3].noise == ("lower", "typos")
    assert added.sets[3].clean_name == "dev"
    assert again(toml_of(added)) == added


def test_a_file_extends_a_run_and_is_named_after_itself(tmp_path: Path) -> None:
    file, deeper = tmp_path / "mine.toml", tmp_path / "deeper.toml"
    with_mark = "utf-8-sig"  # as editors on Windows begin a file
    file.write_text('extends = "demo"\n[training]\nupdates = 900\nfactor = 2\n', encoding=with_mark)
    deeper.write_text('extends = "mine.toml"\nabout = "deeper"\n[model]\nlayers = 3\n')
    run = find_run(f"{deeper}")
    training = replace(DEMO.training, updates=900, factor=2.0)
    wanted = replace(DEMO, name="deeper", about="deeper", training=training, model=replace(DEMO.model, layers=3))
    assert run == wanted
    assert canonical(run.training) == canonical(training), "a whole number in a field of numbers is the same key"


@pytest.mark.parametrize("base", ["base.py:MINE", "base.toml-swapped"])
def test_the_file_that_a_file_extends_is_beside_it(tmp_path: Path, base: str) -> None:
    (tmp_path / "base.py").write_text("from flows.runs import DEMO as MINE\n")
    (tmp_path / "base.toml").write_text('extends = "demo"\n')
    (tmp_path / "mine.toml").write_text(f'extends = "{base}"\nabout = "mine"\n')
    run = find_run(f"{tmp_path / 'mine.toml'}")
    assert run.corpus.source_language == ("en" if base.endswith("MINE") else "de")


@pytest.mark.parametrize("ends", ["", "-swapped"])
def test_files_that_extend_each_other_are_refused(tmp_path: Path, ends: str) -> None:
    (tmp_path / "one.toml").write_text(f'extends = "two.toml{ends}"\n')
    (tmp_path / "two.toml").write_text(f'extends = "one.toml{ends}"\n')
    with pytest.raises(BadConfiguration, match=f"two.toml: extends is 'one.toml{ends}', which is this file or extends"):
        find_run(f"{tmp_path / 'one.toml'}")


def test_a_bare_name_means_the_file_of_that_run_in_the_working_folder_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    home, other, root = (tmp_path / name for name in ("home", "other", "root"))
    home.mkdir()
    other.mkdir()
    monkeypatch.chdir(home)
    Path("mine.toml").write_text('extends = "demo"\n')
    Path("demo.toml").write_text('extends = "multi30k-ende"\n')
    Path("called.toml").write_text('extends = "demo"\nname = "otherwise"\n')
    Path("itself.toml").write_text('extends = "itself"\n')
    assert find_run("mine") == replace(DEMO, name="mine", about="the run of mine.toml")
    assert find_run("demo") == DEMO, "built-in runs come first"
    for name in ("called", "itself"):
        with pytest.raises(BadConfiguration, match=f"unknown run '{name}'"):
            find_run(name)
    started = datetime(2026, 11, 1, tzinfo=UTC)
    record(root, "mine", started, [], asked={"run": "mine.toml"})
    record(root, "otherwise", started, [], asked={"run": f"{home}/called.toml"})
    assert findable("mine", root) == "mine"
    assert not caplog.text
    monkeypatch.chdir(other)
    assert findable("otherwise", root) == f"{home}/called.toml"
    assert f"the run otherwise is taken from {home}/called.toml" in caplog.text
    assert findable("mine", root) == "mine"
    assert "the run mine was asked for as mine.toml, which means no run" in caplog.text


@pytest.mark.parametrize("url", ["data/train.en", "data/of 12:30.en"])
def test_a_relative_url_is_a_path_beside_the_file(tmp_path: Path, url: str) -> None:
    file = tmp_path / "mine.toml"
    table = toml_of(DEMO).replace('url = "embedded:demo/train.en"', f'url = "{url}"')
    file.write_text(table)
    found = find_run(f"{file}").corpus.parts[0]
    assert found.source.file.url == f"{tmp_path}/{url}"
    assert found.target.file.url == "embedded:demo/train.de"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[training]\nupdates = 9 0", "is not TOML: "),
        ('extends = "demo"\n[trainin]\nupdates = 90', "unknown field 'trainin' in run; did you mean training"),
        ('extends = "demo"\n[training]\nupdate = 90', "unknown field 'update' in run.training; did you mean updates"),
        ('extends = "demo"\n[training]\nupdates = "9 0"', "run.training.updates is '9 0', allowed is a whole number"),
        ('extends = "demo"\n[training]\nupdates = true', "run.training.updates is True, allowed is a whole number"),
        ('extends = "demo"\n[training]\nupdates = -1', "training.updates is -1, allowed is"),
        ('extends = "demo"\n[model]\nnorm = "no"', "run.model.norm is 'no', allowed is post or pre"),
        ('extends = "demo"\nevaluate = 3', "run.evaluate is 3, allowed is a list in square brackets"),
        ('extends = "demo"\nmodel = 3', "run.model is 3, allowed is a table"),
        (
            'extends = "demo"\n[[filters.rules]]\nrule = "Emty"',
            "unknown rule 'Emty' in run.filters.rules.1; did you mean",
        ),
        ('extends = "demo"\n[[filters.rules]]\nmin = 1', "allowed is a table with rule, one of Empty, "),
        ('extends = "demo"\n[[filters.rules]]\nrule = "Language"', "run.filters.rules.1.Language has no source"),
        ('extends = "mine.toml"', "extends is 'mine.toml', which is this file or extends it"),
        ('extends = "dem"', "unknown run 'dem'; did you mean demo?"),
        ('name = "mine"', "run has no corpus"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, text: str, sentence: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    with pytest.raises(BadConfiguration) as found:
        find_run(f"{file}")
    assert sentence in f"{found.value}"
