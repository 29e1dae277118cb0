"""Commands that only read leave nothing behind where there is no root, and an unknown model is one sentence."""

import os
import sys
from pathlib import Path

import pytest

from tests.flows.test_cli import call


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("show", 0),
        ("show demo", 0),
        ("plan demo", 0),
        ("models", 0),
        ("models demo", 2),
        ("show demo@champion", 2),
        ("up --print-env", 0),
        ("show --artifacts", 0),
        ("show demo/clean", 2),
        ("show demo/clean --path", 2),
        ("gc", 0),
        ("status", 1),
        ("trace demo dev:1", 0),
        ("compare demo/1 demo/2", 2),
        ("translate", 2),
        ("serve", 2),
        ("trace Hello --attention", 2),
        ("export demo --to huggingface", 2),
    ],
)
def test_a_reading_command_creates_no_root(
    words: str, code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("REPRO_ROOT", "PREFECT_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    with Path(os.devnull).open() as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        assert call(monkeypatch, *words.split()) == code, capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "hint"), [("dmeo", "; did you mean demo?"), ("demo", "; `repro run demo` registers one"), ("xyz", "")]
)
def test_an_unknown_model_of_an_empty_root_is_one_sentence(
    name: str, hint: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "models", name) == 2
    said = capsys.readouterr()
    expected = f"repro: no model '{name}' is registered in {tmp_path / 'repro'}, which has none yet{hint}\n"
    assert (said.out, said.err) == ("", expected)
