"""The model of a run or version is exported to a folder for other programs, whole or not at all."""

import shutil
import sys
from pathlib import Path

import pytest
from small_models import translated
from small_pipeline import run_small

from flows.commands.export import export as command
from flows.inference.export import export, find_trained_model
from flows.runner.request import RunRequest
from infra.errors import BadConfiguration, BadData
from infra.site import Site
from infra.store.local import LocalStore
from model.config import Decoding
from model.data.bpe import write_normalising
from model.decoding.translator import Translator

LINES = ["The old woman sees a dog.", "", "A man runs."]


def test_a_version_and_a_run_are_what_was_scored(small: Path, tmp_path: Path) -> None:
    site = Site.named()
    version, run = find_trained_model("small@candidate", site), find_trained_model("small", site)
    assert (version.name, run.name) == ("small/1", "small")
    assert version.decoding == run.decoding == Decoding(beam=2, max_extra=3)
    weights = [(each.weights / "model.safetensors").read_bytes() for each in (version, run)]
    assert weights[0] == weights[1]
    assert run.normalise
    write_normalising(run.vocabulary, run.normalise, tmp_path)
    assert (tmp_path / "tokenizer.json").read_bytes() == (version.vocabulary / "tokenizer.json").read_bytes()
    run_small(RunRequest("small", overrides=("decoding.beam=1",)))
    assert find_trained_model("small", site) == run
    changed = find_trained_model("small", site, ("decoding.beam=1",))
    assert (changed.name, changed.decoding.beam) == ("small decoding.beam=1", 1)
    assert find_trained_model("small/1", site).decoding.beam == 2


def test_the_command_writes_folders_that_translate(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ctranslate2")
    pytest.importorskip("transformers")
    from model.export.ctranslate2_runtime import Folder

    monkeypatch.chdir(tmp_path)
    command("small/1", to="ctranslate2")
    command("small", to="ctranslate2", quantization="int8")
    command("small", to="huggingface", out=Path("made/here"))
    places = ["exports/small-1-ctranslate2", "exports/small-ctranslate2-int8", "made/here"]
    assert capsys.readouterr().out.split() == places
    assert all((tmp_path / place / "README.md").is_file() for place in places)
    card = (tmp_path / "made/here/README.md").read_text()
    assert card.startswith("---\nlanguage:\n- en\n- de\n"), "the hub reads front matter at the start"
    assert "600 pairs read" in card
    assert "AutoModelForSeq2SeqLM" in card
    assert not list(tmp_path.glob("*/*.partial*"))
    trained = find_trained_model("small", Site.named())
    own = translated(Translator.load(trained.weights, trained.vocabulary, "cpu"), LINES, trained.decoding)
    folder = Folder(Path(places[0]), threads=1)
    assert folder.translate(LINES, folder.search) == [translation.text for translation in own]
    with pytest.raises(BadConfiguration, match="exports/small-1-ctranslate2 exists"):
        command("small/1", to="ctranslate2")


def test_what_is_missing_is_named(small: Path) -> None:
    site = Site.named()
    with pytest.raises(BadConfiguration, match="'smal' has no artifact of translate from a finished run"):
        find_trained_model("smal", site)
    trained = find_trained_model("small", site)
    shutil.move(trained.weights, trained.weights.with_name("elsewhere"))
    try:
        with pytest.raises(
            BadConfiguration, match=f"'small' needs .*{trained.weights.name}, but that artifact is missing"
        ):
            find_trained_model("small", site)
    finally:
        shutil.move(trained.weights.with_name("elsewhere"), trained.weights)
    version = find_trained_model("small/1", site)
    shutil.rmtree(LocalStore(site.root).root / "translate")
    with pytest.raises(BadConfiguration, match="'small' needs .*translate.*, but that artifact is missing"):
        find_trained_model("small", site)
    assert find_trained_model("small/1", site) == version, "a version records its search settings itself"


def test_a_failure_leaves_nothing_and_is_one_sentence(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ctranslate2")
    trained = find_trained_model("small", Site.named())
    out = tmp_path / "exports" / "it"
    with pytest.raises(
        BadConfiguration, match="--quantization is 'int8', allowed is float32 where --to is huggingface"
    ):
        export(trained, "huggingface", "int8", out)
    (trained.vocabulary / "tokenizer.json").rename(trained.vocabulary / "kept.json")
    with pytest.raises(BadData, match="tokenizer.json"):
        export(trained, "ctranslate2", "float32", out)
    (trained.vocabulary / "kept.json").rename(trained.vocabulary / "tokenizer.json")
    for library, module in (("ctranslate2", "ctranslate2"), ("transformers", "huggingface")):
        monkeypatch.delitem(sys.modules, f"model.export.{module}", raising=False)
        for name in [name for name in sys.modules if name.startswith(f"{library}.")]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, library, None)
        with pytest.raises(BadConfiguration, match=f"{library} is not installed here: .*{module}"):
            export(trained, module, "float32", out)  # type: ignore[arg-type]
    assert not list(tmp_path.glob("exports/*"))
