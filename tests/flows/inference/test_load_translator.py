"""Versions of one vocabulary and one pair of languages load as an ensemble; others are refused with their names."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from small_models import LINES, SMALL

from flows.inference import load_translator as module
from flows.inference.load_translator import load_translator
from infra.errors import BadConfiguration
from infra.site import Site
from infra.tracking.model_version import Version
from model.network.weights import build, save_model
from tasks.stages.learn_bpe import Vocabulary, train_tokenizer

ONE, TWO = (
    Version(name, 1, datetime.now(UTC), (), {"source_language": "en", "target_language": "de"}, "", "")
    for name in ("one", "two")
)


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    bare = replace(SMALL, source_ends="none")
    shapes = (("one", SMALL, 290), ("two", replace(SMALL, layers=1), 290), ("other", SMALL, 280), ("bare", bare, 290))
    for name, shape, size in shapes:
        (tmp_path / name / "vocabulary").mkdir(parents=True)
        tokenizer = train_tokenizer([pa.array(LINES * 3)], Vocabulary(size=size, min_frequency=1))
        tokenizer.save(str(tmp_path / name / "vocabulary" / "tokenizer.json"))
        (tmp_path / name / "weights").mkdir()
        save_model(tmp_path / name / "weights", build(shape, size, size))
    monkeypatch.setattr(module, "local_folder", lambda _, version: tmp_path / version.name)
    return tmp_path


def test_versions_of_one_vocabulary_are_an_ensemble(folders: Path) -> None:
    ensemble, folder = load_translator([ONE, TWO], Site.named())
    assert folder == folders / "one"
    assert [model.config.layers for model in ensemble.models] == [2, 1]
    assert len(load_translator([TWO], Site.named())[0].models) == 1


@pytest.mark.parametrize(
    ("other", "what"),
    [
        (replace(TWO, name="other"), r"vocabularies differ \(\w{8} and \w{8}\)"),
        (
            replace(TWO, tags={"source_language": "en", "target_language": "fr"}),
            r"target languages differ \(de and fr\)",
        ),
    ],
)
def test_other_versions_are_refused_in_one_sentence_with_both_names(folders: Path, other: Version, what: str) -> None:
    with pytest.raises(
        BadConfiguration, match=rf"--model names one/1 and {other.name}/1, whose {what}: an ensemble needs"
    ):
        load_translator([ONE, other], Site.named())


def test_versions_that_read_sources_with_other_special_tokens_are_refused(folders: Path) -> None:
    sentence = (
        "--model names one/1, bare/1, which cannot translate together: model.source_ends is 'none', allowed is eos"
    )
    with pytest.raises(BadConfiguration, match=sentence):
        load_translator([ONE, replace(TWO, name="bare")], Site.named())
