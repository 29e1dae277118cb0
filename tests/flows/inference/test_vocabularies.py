"""Runs with other vocabularies train, translate, are served and exported as all runs are."""

from pathlib import Path

import pytest
from small_models import translated
from small_pipeline import run_small

from flows.inference.export import export
from flows.inference.load_version import load_version
from flows.runner.request import RunRequest
from infra.errors import BadConfiguration
from infra.site import Site
from infra.tracking.registry import resolve

WORDS = ("vocabulary.tokens=words", "vocabulary.joint=false", "model.tied=false", "vocabulary.lowercase=true")
MOSES = ("vocabulary.moses=true", "vocabulary.tokens=characters", "vocabulary.lowercase=true")
LINES = ["The old woman sees a dog.", "A dog runs.", "Жук sees the zebrafish"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("overrides", "unknown"),
    [(WORDS, 2), (("vocabulary.scripts=Latin",), 3), (MOSES, 3)],
    ids=["words", "scripts", "moses"],
)
def test_typed_text_is_read_as_training_text_was(
    small: Path, tmp_path: Path, overrides: tuple[str, ...], unknown: int
) -> None:
    pytest.importorskip("ctranslate2")
    from model.export.ctranslate2_runtime import Folder

    outcome = run_small(RunRequest("small", overrides=overrides))
    assert outcome.model_version == "small/2"
    site = Site.named()
    version = resolve(site.tracking, "small/2")
    served = load_version(version, site, "own")
    (ids,) = served.translator.vocabulary.encode_source([LINES[2]])
    assert served.translator.vocabulary.source_pieces(ids).count("<unk>") == unknown
    own = [translation.text for translation in translated(served.translator, LINES, served.decoding)]
    assert all(own)
    if overrides is WORDS:
        assert own == [text.lower() for text in own]
        assert served.target_length(own[0]) == len(served.translator.vocabulary.encode_target([own[0]])[0])
    for hypothesis in served.attention(LINES[2], LINES[2])["cross"].rows:
        assert hypothesis
    export(version, site, "ctranslate2", "float32", tmp_path / "exported")
    folder = Folder(tmp_path / "exported", threads=1)
    assert folder.translate(LINES, folder.search) == own


@pytest.mark.slow
def test_a_version_of_spacy_s_tokens_reads_text_as_they_are_and_is_not_exported(small: Path, tmp_path: Path) -> None:
    pytest.importorskip("spacy")
    overrides = ("vocabulary.tokens=spacy", *WORDS[1:])
    assert run_small(RunRequest("small", overrides=overrides)).model_version == "small/2"
    site = Site.named()
    version = resolve(site.tracking, "small/2")
    served = load_version(version, site, "own")
    vocabulary = served.translator.vocabulary
    assert vocabulary.source_pieces(vocabulary.encode_source(["A\u00a0dog."])[0]) == ["▁a", "▁dog", "▁."]
    assert all(translation.text for translation in translated(served.translator, LINES, served.decoding))
    for form in ("ctranslate2", "huggingface"):
        with pytest.raises(BadConfiguration, match="is 'spacy', allowed is"):
            export(version, site, form, "float32", tmp_path / form)
