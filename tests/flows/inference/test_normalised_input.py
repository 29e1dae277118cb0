"""Text with marks that ``clean`` removes is read as the same text without them, wherever a version is used."""

from pathlib import Path

import mlflow
import pytest
from small_pipeline import run_small
from tokenizers import Tokenizer

from flows import api
from flows.inference.export import export
from flows.inference.load_version import load_version
from flows.runner.request import RunRequest
from infra.site import Site
from infra.tracking.model_files import local_folder
from infra.tracking.registry import resolve
from model.data.bpe import TokenizerPair
from model.decoding.translation import Search
from tests.flows.test_cli import call

PLAIN = "The old woman sees a dog."
MARKED = [
    PLAIN.replace(" old ", "\u00a0old\t"),
    PLAIN.replace("woman", "wo\u00adman"),
    PLAIN.replace("old", "o\u200bld"),
    f"\ufeff{PLAIN}".replace("dog", "d\ufeffog"),
    f" \u00a0 {PLAIN}\u2028",
]
SAID = "control characters removed, characters composed (NFC), white space made single spaces"


def test_the_page_and_mlflow_read_marked_text_as_training_text(small: Path) -> None:
    site = Site.named()
    version = resolve(site.tracking, "small/1")
    assert version.tags["dev.source_input"] == SAID
    assert TokenizerPair.load(local_folder(site.tracking, version) / "vocabulary").normalise.about == SAID
    served = load_version(version, site, "own")
    found = served.translate([PLAIN, *MARKED], Search(served.decoding))
    assert [each.sources for each in found] == [found[0].sources] * len(found)
    assert [served.sentences(line) for line in MARKED] == [served.sentences(PLAIN)] * len(MARKED)
    maps = [served.attention(line, "Ein Hund")["cross"] for line in (PLAIN, *MARKED)]
    assert {each.columns for each in maps} == {maps[0].columns}
    mlflow.set_tracking_uri(site.tracking)
    model = mlflow.pyfunc.load_model("models:/small/1")
    assert len(set(model.predict([PLAIN, *MARKED], params={"engine": "own"}))) == 1


def test_the_command_and_the_api_read_marked_text_as_training_text(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, out = tmp_path / "in", tmp_path / "out"
    lines = [line.replace("\u2028", "") for line in (PLAIN, *MARKED)]
    given.write_text("".join(f"{line}\n" for line in lines))
    for split in ("never", "always"):
        assert call(monkeypatch, "translate", f"{given}", f"{out}", "--model", "small/1", "--split", split) == 0
        assert len(set(out.read_text().splitlines())) == 1
    found = api.translate([PLAIN, *MARKED], "small/1")
    assert found["hypothesis"].n_unique() == 1


def test_an_export_reads_marked_text_as_training_text(small: Path, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    from model.export.ctranslate2_runtime import Folder

    site = Site.named()
    version = resolve(site.tracking, "small/1")
    export(version, site, "ctranslate2", "float32", tmp_path / "ct2")
    assert not list(tmp_path.glob("ct2.*")), "nothing else is left"
    folder = Folder(tmp_path / "ct2", threads=1)
    assert len(set(folder.translate([PLAIN, *MARKED], folder.search))) == 1
    pytest.importorskip("transformers")
    export(version, site, "huggingface", "float32", tmp_path / "hf")
    tokenizer = Tokenizer.from_file(str(tmp_path / "hf" / "tokenizer.json"))
    assert len({tuple(tokenizer.encode(line).ids) for line in (PLAIN, *MARKED)}) == 1


@pytest.mark.slow
def test_a_version_trained_on_text_as_it_is_reads_it_so(small: Path) -> None:
    off = tuple(f"filters.normalise.{name}=false" for name in ("nfc", "control", "white_space"))
    outcome = run_small(RunRequest("small", overrides=off))
    assert outcome.model_version == "small/2"
    assert all("source_input" not in score for score in outcome.scores.values())
    site = Site.named()
    served = load_version(resolve(site.tracking, "small/2"), site, "own")
    plain, marked, outside = served.translate([PLAIN, MARKED[0], f" {PLAIN}\t"], Search(served.decoding))
    assert plain.sources == outside.sources != marked.sources
