"""A registered model through ``mlflow.pyfunc.load_model``: its params, and the outputs that they give."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mlflow
import pytest
from small_models import LINES, SMALL, translated, write_model

import model.export
from infra.tracking.model_logging import TextModel, _save
from model.config import Decoding
from model.decoding.translation import translator_params
from model.decoding.translator import Translator

DECODING = Decoding(beam=3, alpha=1.0, max_extra=4)
TEXT = [LINES[0], "", LINES[2]]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_model(tmp_path_factory.mktemp("model"), replace(SMALL, layers=1))


@pytest.fixture(scope="module")
def translator(folders: tuple[Path, Path]) -> Translator:
    return Translator.load(*folders, "cpu")


@pytest.fixture(scope="module")
def loaded(folders: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The model as it is registered, loaded as MLflow's users do."""
    code = Path(f"{model.export.__file__}").with_name("mlflow_model.py")
    parts = dict(zip(("weights", "vocabulary"), folders, strict=True))
    options = translator_params(DECODING) | {"split": "never"}
    text_model = TextModel(code, code.parents[1], parts, options, ("torch", "tokenizers"), ("A dog",))
    scratch = tmp_path_factory.mktemp("saved")
    _save(scratch, "0" * 32, SimpleNamespace(artifact_location=f"{scratch}", model_id="m-1"), text_model)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", f"{scratch}/cache")
        yield mlflow.pyfunc.load_model(f"{scratch}/model")


def test_the_signature_lists_every_param_with_its_default(loaded: Any) -> None:
    params = {each.name: each.default for each in loaded.metadata.signature.params}
    assert params == translator_params(DECODING) | {"split": "never"}


def test_without_params_the_output_is_a_text_for_each_line(loaded: Any, translator: Translator) -> None:
    assert loaded.predict(TEXT) == [each.text for each in translated(translator, TEXT, DECODING)]
    greedy = loaded.predict(TEXT, params={"beam": 1, "alpha": 0.0})
    assert greedy == [each.text for each in translated(translator, TEXT, replace(DECODING, beam=1, alpha=0.0))]


def test_n_best_and_scores_give_a_dict_for_each_hypothesis(loaded: Any, translator: Translator) -> None:
    rows = loaded.predict(TEXT, params={"n_best": 3})
    assert [(row["line"], row["rank"]) for row in rows] == [(1, 1), (1, 2), (1, 3), (2, 1), (3, 1), (3, 2), (3, 3)]
    sources = translator.vocabulary.encode_source([TEXT[0]])
    for row, hypothesis in zip(rows, translator.search_n_best(sources, DECODING, 3)[0], strict=False):
        assert row["text"] == translator.text(hypothesis)
        assert row["score"] == pytest.approx(hypothesis.score, abs=1e-4)
        assert row["log_probability"] == pytest.approx(hypothesis.log_probability, abs=1e-4)
        assert (row["pieces"], row["finished"]) == (hypothesis.length, hypothesis.finished)
    assert [row["rank"] for row in loaded.predict(TEXT, params={"scores": True})] == [1, 1, 1]


def test_both_engines_give_the_same_and_the_rows_name_them(loaded: Any) -> None:
    pytest.importorskip("ctranslate2")
    found = {each: loaded.predict(TEXT, params={"scores": True, "engine": each}) for each in ("auto", "own")}
    assert [{row["engine"] for row in rows} for rows in found.values()] == [{"CTranslate2"}, {"own search"}]
    assert [row["text"] for row in found["auto"]] == [row["text"] for row in found["own"]]
    assert {row["engine"] for row in loaded.predict(TEXT, params={"n_best": 2})} == {"own search"}


def test_without_a_home_folder_the_own_engine_searches(loaded: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", homeless)
    monkeypatch.delitem(vars(loaded.unwrap_python_model().engines["auto"]), "opened", raising=False)
    assert {row["engine"] for row in loaded.predict(TEXT, params={"scores": True})} == {"own search"}


@pytest.mark.parametrize(("field", "params"), [("n_best", {"n_best": 6}), ("engine", {"engine": "marian"})])
def test_impossible_params_are_named(loaded: Any, field: str, params: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=field):
        loaded.predict(TEXT, params=params)
