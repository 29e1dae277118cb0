"""Every command that takes a run means the same by its name on record and by its file, however that is written."""

import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from made_up_roots import record
from small_pipeline import run_small

from flows.api import sentences
from flows.runner.artifact_names import ArtifactName, is_version, parse_name
from flows.runner.find_run import find_run, recorded_name, split_name
from flows.runner.request import RunRequest
from flows.runs import DEMO, RUNS
from flows.runs.toml_runs import toml_of
from infra.errors import BadConfiguration
from tests.flows.test_cli import call

SPELLINGS = ("mine", "../text/mine.toml", "below/mine.toml", "{folder}/text/mine.toml", "../text/own.py:MINE")
COMMANDS = (
    "run {}",
    "plan {}",
    "trace {} test:3",
    "filters {}",
    "logs {} score/test",
    "stop {}",
    "history {}",
    "show {}",
    "show {}/clean --path",
    "show {}@champion",
    "show {} --artifacts",
    "verify {}/score",
    "models {}",
    "promote {}@champion --why again",
    "compare {} {}@champion system:other",
    "gc --keep {}",
    "score other.txt --on {}/test --anyway",
    "gap {} --claim 40",
    "gap {}/1 --as {}@champion",
    "trace Hello --attention --model {}@champion",
)
OUT_OF_DATE = re.compile(r"\d+ (s|min)\b")
"""How old an artifact is."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the run ``mine`` in ``text``; the working folder is another one, with a file below it."""
    for name in ("text", "clone/below"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "clone")
    return tmp_path


def write_files(folder: Path, base: str) -> None:
    text = toml_of(replace(RUNS[base], name="mine"))
    for place in ("text", "clone/below"):
        (folder / place / "mine.toml").write_text(text)
    own = "from flows.runner.find_run import find_run\nMINE = find_run({!r})\n"
    (folder / "text/own.py").write_text(own.format(f"{folder}/text/mine.toml"))


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_name_is_the_run_and_what_follows_it(
    spelling: str, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write_files(folder, "demo")
    monkeypatch.setenv("REPRO_ROOT", str(folder / "root"))
    record(folder / "root", "mine", datetime(2026, 11, 1, tzinfo=UTC), [], asked={"run": "../text/mine.toml"})
    run = spelling.format(folder=folder)
    for rest in ("", "/3", "/score/test", "-swapped"):
        assert split_name(run + rest) == ((f"{run}-swapped", "") if rest == "-swapped" else (run, rest))
        assert recorded_name(run + rest) == f"mine{rest}"
    assert parse_name(f"{run}/score/test") == ArtifactName("mine", "score", "test")
    with pytest.raises(BadConfiguration, match="did you mean mine"):
        find_run("mien")
    with pytest.raises(BadConfiguration, match=f"unknown run 'mine': .* mine.toml in {folder}/clone "):
        find_run("mine")
    assert recorded_name(f"{run}@champion") == "mine@champion"
    versions = {"": False, "/clean": False, "/score/3": False, "/3": True, "@champion": True}
    assert {rest: is_version(run + rest) for rest in versions} == versions
    assert RunRequest(run).resolve().run == replace(DEMO, name="mine")
    assert ("the run mine is taken from ../text/mine.toml" in caplog.text) == (run == "mine")
    with pytest.raises(BadConfiguration, match="unknown stage 'claen'"):
        parse_name(f"{run}/claen")


def test_every_command_says_the_same_by_the_name_and_by_the_file(
    small: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_files(folder, "small")
    run_small(RunRequest("../text/mine.toml"))
    lines = [*sentences("mine").filter(set="test")["hypothesis"]]
    Path("other.txt").write_text("".join(f"{line}\n" for line in [*lines[:-1], "something else"]))
    assert call(monkeypatch, "score", "other.txt", "--on", "mine/test", "--anyway") == 0
    for command in COMMANDS:
        said = {}
        for spelling in SPELLINGS[:2]:
            capsys.readouterr()
            words = [word.format(spelling.format(folder=folder)) for word in command.split()]
            code = call(monkeypatch, *words)
            out, err = capsys.readouterr()
            assert code == (1 if "stop" in words else 0), (words, err)
            assert "mine is not at work" in err or "stop" not in words
            said[spelling] = OUT_OF_DATE.sub("", out)
        assert len({*said.values()}) == 1, (command, said)
        assert any(said.values()) or command.startswith(("logs", "stop", "verify", "promote")), command
    with pytest.raises(BadConfiguration, match=r"'mine --set decoding.beam=1' has settings, allowed is its version"):
        sentences("mine --set decoding.beam=1")


def test_the_score_stands_on_stdout_and_with_json_nothing_else_does(
    small: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = sentences("small").filter(set="test")["hypothesis"]
    Path("other.txt").write_text("".join(f"{line}\n" for line in [*found[:-1], "something else"]))
    score = "score other.txt --on small/test --anyway"
    for command in (score, "run small", "compare small/1 system:other", "gap small --claim 40"):
        capsys.readouterr()
        assert call(monkeypatch, *command.split()) == 0
        text = capsys.readouterr().out
        assert call(monkeypatch, *command.split(), "--json") == 0
        result, aside = capsys.readouterr()
        json.loads(result)
        assert "bleu" in text.lower()
        assert re.findall(r"\d+\.\d\d", text)[:3] == re.findall(r"\d+\.\d\d", aside)[:3] != [], command
