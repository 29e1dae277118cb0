"""A version is exported to a folder for other programs, whole or not at all."""

import sys
from pathlib import Path

import pytest
from small_models import translated

from flows.commands.export import export as command
from flows.inference.export import export
from flows.inference.load_version import load_version
from infra.errors import BadConfiguration, BadData
from infra.site import Site
from infra.tracking.model_files import local_folder
from infra.tracking.registry import resolve

LINES = ["The old woman sees a dog.", "", "A man runs."]


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
    places = ["exports/small-1-ctranslate2", "exports/small-1-ctranslate2-int8", "made/here"]
    assert capsys.readouterr().out.split() == places
    assert all((tmp_path / place / "README.md").is_file() for place in places)
    card = (tmp_path / "made/here/README.md").read_text()
    assert card.startswith("---\nlanguage:\n- en\n- de\n"), "the hub reads front matter at the start"
    assert "600 pairs read" in card
    assert card.index("AutoModelForSeq2SeqLM") < card.index("## Use"), "first what works without the project"
    assert not list(tmp_path.glob("*/*.partial*"))
    site = Site.named()
    loaded = load_version(resolve(site.tracking, "small"), site, "own")
    own = translated(loaded.translator, LINES, loaded.decoding)
    folder = Folder(Path(places[0]), threads=1)
    assert folder.translate(LINES, folder.search) == [translation.text for translation in own]
    with pytest.raises(BadConfiguration, match="exports/small-1-ctranslate2 exists"):
        command("small/1", to="ctranslate2")


def test_a_failure_leaves_nothing_and_is_one_sentence(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ctranslate2")
    site = Site.named()
    version = resolve(site.tracking, "small")
    vocabulary = local_folder(site.tracking, version) / "vocabulary"
    out = tmp_path / "exports" / "it"
    with pytest.raises(BadConfiguration, match="--quantization is 'int8'"):
        export(version, site, "huggingface", "int8", out)
    (vocabulary / "tokenizer.json").rename(vocabulary / "kept.json")
    with pytest.raises(BadData, match="vocabulary"):
        export(version, site, "ctranslate2", "float32", out)
    (vocabulary / "kept.json").rename(vocabulary / "tokenizer.json")
    for library, module in (("ctranslate2", "ctranslate2"), ("transformers", "huggingface")):
        monkeypatch.delitem(sys.modules, f"model.export.{module}", raising=False)
        for name in [name for name in sys.modules if name.startswith(f"{library}.")]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, library, None)
        with pytest.raises(BadConfiguration, match=f"{library} is not installed here: .*{module}"):
            export(version, site, module, "float32", out)  # type: ignore[arg-type]
    assert not list(tmp_path.glob("exports/*"))
