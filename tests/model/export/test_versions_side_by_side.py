"""Versions of different code load into one process, beside a module of the caller that is called ``model``."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from zipfile import ZipFile

import pytest

from infra.tracking.model_logging import TextModel, _save, copy_under_own_name

OLD = Path(__file__).with_name("version_importing_model.zip")
"""A version of a tiny model, packaged on 2026-11-22, when packaged code still imported ``model``."""
OLD_BEST = [["", -2.86686], ["<<<<q<<", -9.26299]]

CODE = """
import mlflow
from model.words import greeting

class Toy(mlflow.pyfunc.PythonModel):
    def predict(self, context, model_input, params=None):
        from model.later import ending
        return [f"{greeting} {line}{ending}" for line in model_input.iloc[:, 0]]

mlflow.models.set_model(Toy())
"""
BOTH = """
import json, sys, mlflow
import model
first, second = (mlflow.pyfunc.load_model(folder) for folder in sys.argv[1:3])
print(json.dumps([first.predict(["a"]), second.predict(["a"]), first.predict(["b"]), model.mine]))
"""
LOAD_OLD = """
import json, sys, mlflow
loaded = mlflow.pyfunc.load_model(sys.argv[1])
rows = loaded.predict(["Two dogs run.", "A dog"], params={"scores": True})
print(json.dumps([[row["text"], round(row["log_probability"], 5)] for row in rows]))
"""


def packaged(folder: Path, greeting: str) -> Path:
    """A version whose package is called ``model``."""
    package = folder / greeting / "model"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "words.py").write_text(f"greeting = {greeting!r}\n")
    (package / "later.py").write_text("from .words import greeting\nending = f', says {greeting}'\n")
    (package / "pyfunc.py").write_text(CODE)
    toy = TextModel(package / "pyfunc.py", package, {}, {}, ("numpy",), ("A dog",))
    scratch = folder / greeting / "saved"
    scratch.mkdir()
    _save(scratch, "0" * 32, SimpleNamespace(artifact_location=f"{scratch}", model_id="m-1"), toy)
    return scratch / "model"


def run(program: str, *words: Path, path: Path) -> object:
    environment = {**os.environ, "PYTHONPATH": f"{path}", "CUDA_VISIBLE_DEVICES": "", "DO_NOT_TRACK": "true"}
    command = [sys.executable, "-c", program, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=path, env=environment)
    return json.loads(done.stdout.splitlines()[-1])


def test_two_versions_and_the_caller_s_own_module_live_in_one_process(tmp_path: Path) -> None:
    before = set(sys.modules)  # other tests of this process may have loaded a version
    folders = [packaged(tmp_path, greeting) for greeting in ("hello", "salut")]
    (tmp_path / "model.py").write_text("mine = 'a module of the caller'\n")
    assert run(BOTH, *folders, path=tmp_path) == [
        ["hello a, says hello"],
        ["salut a, says salut"],
        ["hello b, says hello"],
        "a module of the caller",
    ]
    stay = [name for name in sys.modules.keys() - before if name.startswith("model_")]
    assert not stay, "the packaged copies stay imported"


def test_equal_code_has_one_name_and_the_translator_imports_nothing_called_model(tmp_path: Path) -> None:
    found = Path(__file__).parents[3] / "model"
    model = TextModel(found / "export" / "mlflow_model.py", found, {}, {}, (), ())
    (tmp_path / "other").mkdir()
    copies = [copy_under_own_name(model, folder) for folder in (tmp_path, tmp_path / "other")]
    assert copies[0].relative_to(tmp_path) == copies[1].relative_to(tmp_path / "other")
    package = copies[0].parents[1]
    for file in package.rglob("*.py"):
        lines = [line.split() for line in file.read_text().splitlines()]
        imported = [words[1].partition(".")[0] for words in lines if len(words) > 1 and words[0] in ("from", "import")]
        assert "model" not in imported, file


@pytest.mark.slow
def test_a_version_of_before_keeps_loading(tmp_path: Path) -> None:
    ZipFile(OLD).extractall(tmp_path / "old")
    assert run(LOAD_OLD, tmp_path / "old", path=tmp_path) == OLD_BEST
