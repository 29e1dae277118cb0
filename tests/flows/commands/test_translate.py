"""``repro translate`` with either engine, on registered versions of the small run."""

import json
from pathlib import Path
from typing import Any

import pytest

from model.config import Decoding
from tests.flows.test_cli import call

LINE = "The old woman sees a dog."


def answer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, *words: str) -> list[str]:
    given, out = tmp_path / "in", tmp_path / "out"
    given.write_text(text)
    assert call(monkeypatch, "translate", f"{given}", f"{out}", *words) == 0
    return out.read_text().splitlines()


def test_results_say_which_engine_searched_and_the_engines_agree(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ctranslate2")
    text = f"{LINE}\n\nA man runs.\n"

    def rows(*words: str) -> tuple[list[str], list[str]]:
        capsys.readouterr()
        found = [
            json.loads(row) for row in answer(monkeypatch, tmp_path, text, "--model", "small/1", "--scores", *words)
        ]
        return [row["hypotheses"][0]["text"] for row in found], [row["engine"] for row in found]

    own, by_default = rows("--engine", "own"), rows()
    assert own == (by_default[0], ["own search"] * 3)
    assert by_default[1] == ["CTranslate2"] * 3
    assert "small/1 is searched by CTranslate2: float32, " in capsys.readouterr().err
    assert rows("--engine", "ctranslate2", "--n-best", "2")[1] == ["own search"] * 3
    assert "n_best is 2, and CTranslate2 keeps no more" in capsys.readouterr().err
    assert rows("--quantization", "int8")[1] == ["CTranslate2"] * 3
    assert rows("--quantization", "int8", "--n-best", "2")[1] == ["own search"] * 3
    assert "n_best is 2" in capsys.readouterr().err


def test_engines_are_compared_with_the_settings_of_the_run_whatever_is_asked_for(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ctranslate2")
    compared: list[Decoding] = []

    def noted(*arguments: Any) -> None:
        compared.append(arguments[4])
        raise ValueError

    monkeypatch.setattr("model.export.ctranslate2_form.find_or_make", noted)
    for search in (), ("--beam", "1"), ("--alpha", "3"):
        answer(monkeypatch, tmp_path, f"{LINE}\n", "--model", "small/1", *search)
    assert len(compared) == 3
    assert compared[0] == compared[1] == compared[2]
