"""Versions of one vocabulary and one pair of languages load as an ensemble; others are refused with their names."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from small_models import LINES, SMALL

from flows.inference import load_version as module
from flows.inference.load_version import decoding_config, load_version
from infra.errors import BadConfiguration
from infra.site import Site
from infra.tracking.model_version import Version
from model.config import Decoding
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
    ensemble = load_version(ONE, Site.named(), "own", others=[TWO])
    assert ensemble.name == "one/1"
    assert [model.config.layers for model in ensemble.translator.models] == [2, 1]
    assert len(load_version(TWO, Site.named(), "own").translator.models) == 1


@pytest.mark.parametrize(
    "other",
    [
        replace(TWO, name="other"),
        replace(TWO, tags={"source_language": "en", "target_language": "fr"}),
        replace(TWO, name="bare"),
    ],
    ids=["vocabulary", "language", "special tokens"],
)
def test_versions_that_do_not_fit_are_refused_with_both_names(folders: Path, other: Version) -> None:
    with pytest.raises(BadConfiguration, match=rf"one/1.*{other.name}/1"):
        load_version(ONE, Site.named(), "own", others=[other])


def test_a_setting_of_an_earlier_release_is_left_out() -> None:
    tags = {"decoding.beam": "2", "decoding.numerics": "fast", "decoding.beta": "0.0"}
    assert decoding_config(replace(ONE, tags=tags)) == Decoding(beam=2)
