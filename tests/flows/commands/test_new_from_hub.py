"""``repro new`` reads a dataset of the Hugging Face Hub."""

import hashlib
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import polars as pl
import pytest

from flows.commands.new import new
from flows.runner.find_run import find_run
from infra.errors import BadConfiguration, Fault, NetworkFault
from tasks.demo import corpus as demo_corpus

SHA = "5bc7bb75c7a3e0a5b1b6b1f2a1d2b0b0c5e0a1f2"


def hub(monkeypatch: pytest.MonkeyPatch, folder: Path, error: Exception | None = None) -> list[str | None]:
    """Stand in for the Hub: one dataset, whose files are in ``folder``; gives the revisions that are asked for."""
    asked: list[str | None] = []

    def info(_: object, name: str, revision: str | None = None) -> SimpleNamespace:
        asked.append(revision)
        if error:
            raise error
        assert name == "own/pairs"
        names = [f"{path.relative_to(folder)}" for path in folder.rglob("*.parquet")]
        return SimpleNamespace(sha=SHA, siblings=[SimpleNamespace(rfilename=name) for name in names])

    def download(name: str, file: str, repo_type: str, revision: str) -> str:
        assert (name, repo_type, revision) == ("own/pairs", "dataset", SHA)
        return f"{folder / file}"

    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", info)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    return asked


def test_a_dataset_by_name_is_pinned_to_its_revision(
    text: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path_factory.mktemp("hub")
    lines = {side: demo_corpus.content(f"demo/test.{side}").decode().splitlines() for side in ("en", "de")}
    (folder / "data").mkdir()
    for number in range(2):
        rows = {side: lines[side][number * 200 : (number + 1) * 200] for side in lines}
        pl.DataFrame(rows).write_parquet(folder / f"data/train-{number}.parquet")
    asked = hub(monkeypatch, folder)
    source, target = (f"hf://datasets/own/pairs@refs%2Fpr%2F1/data/train-*.parquet:{side}" for side in ("en", "de"))
    new("mine", source=source, target=target, dev=("dev.en", "dev.de"))
    assert asked == ["refs/pr/1"] * 2
    parts = find_run("mine.toml").corpus.parts
    assert [part.source.file.url for part in parts] == [
        f"hf://datasets/own/pairs@{SHA}/data/train-{number}.parquet" for number in range(2)
    ]
    assert {part.target.column for part in parts} == {"de"}
    made = hashlib.sha256((folder / "data/train-1.parquet").read_bytes()).hexdigest()
    assert parts[1].target.file.sha256 == made
    with pytest.raises(BadConfiguration, match="'test.parquet'"):
        new("other", source="hf://datasets/own/pairs/test.parquet:en", target=target)


@pytest.mark.parametrize(
    ("words", "error", "kind", "sentence"),
    [
        ("hf://own/pairs/a.parquet:en", None, BadConfiguration, "hf://datasets/OWNER/NAME"),
        ("hf://datasets/own/pairs/a.parquet:en", OSError("no route\nto host"), NetworkFault, r"\(no route\)"),
    ],
)
def test_what_the_hub_cannot_give_is_said(
    words: str, error: Exception | None, kind: type[Fault], sentence: str, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub(monkeypatch, text, error)
    with pytest.raises(kind, match=sentence):
        new("mine", source=words, target="data/train.de.gz")
