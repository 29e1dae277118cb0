"""Existing work is sealed as a run's artifact: checked, marked as adopted, used by later stages, replaced by force."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from s3_server import Server
from safetensors.torch import load_file, save_file
from small_pipeline import Untracked, run_small

from flows.commands.adopt import adopt as command
from flows.commands.gc import gc
from flows.inspection.artifact_list import artifact_folders, list_artifacts
from flows.inspection.trace import trace_pair
from flows.runner.interrupted import unfinished
from flows.runner.outcome import Outcome, cached_outcome
from flows.runner.request import RunRequest, plan
from infra.errors import BadConfiguration, BadData
from infra.site import Site, open_store
from infra.store.manifest import Manifest
from infra.tracking.client import mlflow_client
from infra.tracking.registry import resolve
from tasks.cleaning.partitions import REJECTED

SMALL = RunRequest("small")


def states(outcome: Outcome, *stages: str) -> set[str]:
    return {row.label for row in outcome.rows if row.stage in stages}


def manifest(stage: str) -> Manifest:
    row = next(row for row in plan(SMALL).rows if row.stage == stage)
    found = open_store(Site.named()).manifest(stage, row.key)
    assert found
    return found


def copied(stage: str, out: Path) -> Path:
    """A copy of an artifact's files, as they lie about elsewhere."""
    (folder,) = artifact_folders(f"small/{stage}", Site.named())
    shutil.copytree(folder, out, ignore=shutil.ignore_patterns("manifest.json", "*.log", "*.jsonl", "exit.json"))
    return out


def test_adopted_text_is_used_and_forcing_makes_it(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Half of the pairs and no rejected one, in an empty root."""
    text = copied("clean", tmp_path / "text")
    pairs = pl.read_parquet(text / "pairs.parquet").head(300)
    pairs.write_parquet(text / "pairs.parquet")
    pl.DataFrame(schema=dict.fromkeys(REJECTED, pl.String)).write_parquet(text / "rejected.parquet")
    (text / "notes.txt").write_text("not a file of the stage")
    monkeypatch.setenv("REPRO_ROOT", str(tmp_path / "empty"))
    monkeypatch.setattr("flows.runner.run.Tracker", Untracked)
    command("clean", text, run="small", as_json=True)
    out, said = capsys.readouterr()
    assert states(Outcome.from_json(json.loads(out)), "clean") == {"hit (adopted)"}
    assert "is the clean of small now; 1 stages are hits, to run: download small/train.en" in said
    sealed = manifest("clean")
    assert (sealed.facts["pairs"], sealed.facts["rejected"], sealed.inputs) == (300, 0, {})
    assert sealed.adopted.startswith(f"adopted from {text}, by ")
    assert set(sealed.files) == {"pairs.parquet", "rejected.parquet"}
    gc(delete=True)
    assert [each.name for each in list_artifacts("small", Site.named())] == ["small/clean"], "gc keeps it"
    assert unfinished(Site.named()) == []

    until = replace(SMALL, until="report")
    first = run_small(until)
    assert states(first, "clean") == {"cached (adopted)"}
    assert states(first, "download", "learn_bpe", "shard", "train", "report") == {"completed"}
    assert next(row.facts["pairs"] for row in first.rows if row.stage == "shard") == 300
    assert cached_outcome(plan(until))
    assert f"clean was adopted from {text}" in " ".join(trace_pair("small", pairs["pair_id"][0]).notes)
    forced = run_small(replace(SMALL, force=("clean",), until="clean"))
    assert states(forced, "clean") == {"completed"}
    assert manifest("clean").adopted == ""
    assert manifest("clean").facts["pairs"] > 300


def test_adopted_weights_are_registered_as_such(small: Path, tmp_path: Path) -> None:
    folder = copied("average", tmp_path / "weights")
    tensors = load_file(folder / "model.safetensors")
    save_file({name: tensor * 1.01 for name, tensor in tensors.items()}, folder / "model.safetensors")
    with pytest.raises(BadConfiguration, match=r"exists: small has its average already; --force replaces it"):
        command("average", folder, run="small")
    command("average", folder, run="small", force=True)
    assert states(plan(SMALL), "train", "average") == {"hit", "hit (adopted)"}
    done = run_small()
    assert states(done, "average") == {"cached (adopted)"}
    assert states(done, "translate", "register") == {"completed"}
    assert cached_outcome(plan(SMALL))
    site = Site.named()
    version = resolve(site.tracking, done.model_version)
    origin = f"adopted from {folder}, by "
    assert version.tags["adopted.average"].startswith(origin)
    assert "key.train" not in version.tags, "the training did not make these weights"
    client = mlflow_client(site.tracking)
    number = f"{version.version}"
    assert f"- average was {origin}" in client.get_model_version(version.name, number).description
    parent = client.get_run(client.get_run(version.run_id).data.tags["mlflow.parentRunId"])
    assert parent.data.tags["adopted.average"].startswith(origin)
    assert "cached (adopted)" in parent.data.tags["mlflow.note.content"]


def test_an_adopted_tokenizer_and_a_file_are_hits(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mirror: Path
) -> None:
    monkeypatch.setenv("REPRO_ROOT", str(small))
    tokenizer = copied("learn_bpe", tmp_path / "vocabulary") / "tokenizer.json"
    tokenizer.write_text(json.dumps(json.loads(tokenizer.read_text()), indent=2))
    monkeypatch.setenv("REPRO_ROOT", str(tmp_path / "empty"))
    monkeypatch.setattr("flows.runner.run.Tracker", Untracked)
    command("learn_bpe", tokenizer, run="small")
    command("download", mirror / "small" / "train.en", run="small", item="small/train.en")
    assert manifest("learn_bpe").facts == {"size": 400, "target_size": 400}
    done = run_small(replace(SMALL, until="shard"))
    hits = {(row.stage, row.item) for row in done.rows if row.label == "cached (adopted)"}
    assert hits == {("learn_bpe", ""), ("download", "small/train.en")}


def test_adopted_work_in_a_bucket_is_a_hit_elsewhere_also_under_strict(
    small: Path, s3: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = copied("learn_bpe", tmp_path / "vocabulary") / "tokenizer.json"
    monkeypatch.setenv("REPRO_ROOT", f"s3://{s3.bucket}/prefix")
    monkeypatch.setenv("REPRO_CACHE", str(tmp_path / "first"))
    command("learn_bpe", tokenizer, run="small")
    monkeypatch.setenv("REPRO_CACHE", str(tmp_path / "second"))
    assert states(plan(SMALL), "learn_bpe") == {"hit (adopted)"}
    (folder,) = artifact_folders("small/learn_bpe", Site.named())
    assert (folder / "tokenizer.json").read_bytes() == tokenizer.read_bytes()
    with pytest.raises(BadConfiguration, match="s3://.* exists: small has its learn_bpe already"):
        command("learn_bpe", tokenizer, run="small")
    monkeypatch.setenv("REPRO_STRICT", "1")
    (row,) = (row for row in plan(SMALL).rows if row.stage == "learn_bpe")
    assert row.label == "hit (adopted)"
    assert row.why.startswith(f"adopted from {tokenizer}, by ")


def _drop_column(folder: Path) -> None:
    pl.read_parquet(folder / "pairs.parquet").drop("pair_id").write_parquet(folder / "pairs.parquet")


def _change_vocabulary(folder: Path, change: Callable[[dict[str, object]], object]) -> None:
    form = json.loads((folder / "tokenizer.json").read_text())
    change(form)
    (folder / "tokenizer.json").write_text(json.dumps(form))


def _change_model(folder: Path, **fields: object) -> None:
    shape = json.loads((folder / "model.json").read_text())
    sizes = {name: fields.pop(name) for name in ("source_size", "target_size") if name in fields}
    shape = {**shape, **sizes, "model": {**shape["model"], **fields}}
    (folder / "model.json").write_text(json.dumps(shape))


def _break_weights(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    next(iter(tensors.values())).view(-1)[0] = float("nan")
    save_file(tensors, folder / "model.safetensors")


@pytest.mark.parametrize(
    ("stage", "change", "sentence"),
    [
        (
            "clean",
            lambda folder: (folder / "rejected.parquet").unlink(),
            "has no rejected.parquet, allowed is a folder",
        ),
        ("clean", lambda folder: (folder / "pairs.parquet").write_text("a"), "pairs.parquet is not a readable Parquet"),
        ("clean", _drop_column, "pairs.parquet needs the text columns pair_id, corpus, source, target, but pair_id is"),
        (
            "learn_bpe",
            lambda folder: _change_vocabulary(folder, lambda form: form.update(normalizer=None)),
            "tokenizer.json has the normalizer null, allowed is",
        ),
        ("learn_bpe", lambda folder: (folder / "tokenizer.json").write_text("{"), "is not a readable tokenizer"),
        (
            "average",
            lambda folder: _change_model(folder, d_ff=64),
            "model.safetensors is of another model: size mismatch",
        ),
        (
            "average",
            lambda folder: _change_model(folder, heads=4, d_k=4, d_v=4),
            "model.heads of model.json is 4, and of this run 2",
        ),
        ("average", lambda folder: _change_model(folder, source_size=9), "model.json describes no model"),
        ("average", lambda folder: (folder / "model.json").write_text("{}"), "model.json describes no model"),
        ("average", _break_weights, "holds values that are not finite"),
        (
            "average",
            lambda folder: (folder / "model.safetensors").write_bytes(b"x"),
            "model.safetensors cannot be read",
        ),
    ],
)
def test_work_of_another_form_is_refused(
    small: Path, tmp_path: Path, stage: str, change: Callable[[Path], object], sentence: str
) -> None:
    folder = copied(stage, tmp_path / "work")
    change(folder)
    before = plan(SMALL).rows
    with pytest.raises((BadData, BadConfiguration), match=sentence) as refused:
        command(stage, folder, run="small", force=True)
    assert f"{folder}" in f"{refused.value}"
    assert ".partial" not in f"{refused.value}"
    assert plan(SMALL).rows == before
    assert not list(small.glob(f"{stage}/*.partial*"))


def test_weights_and_tokenizers_of_another_size_are_refused(small: Path, tmp_path: Path) -> None:
    other = ("vocabulary.size=380",)
    for stage in ("learn_bpe", "average"):
        folder = copied(stage, tmp_path / stage)
        with pytest.raises(BadData, match="400.*, allowed is .*380"):
            command(stage, folder, run="small", overrides=other)


def test_wrong_words_are_refused(small: Path, tmp_path: Path, mirror: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRO_ROOT", str(small))
    with pytest.raises(BadConfiguration, match="stage is 'score', allowed is one that can be adopted: download, clean"):
        command("score", tmp_path, run="small")
    with pytest.raises(
        BadConfiguration, match="PATH is nowhere, which does not exist: name a folder with pairs.parquet"
    ):
        command("clean", Path("nowhere"), run="small")
    with pytest.raises(BadConfiguration, match="--item is 'val', allowed is none"):
        command("clean", tmp_path, run="small", item="val")
    with pytest.raises(BadConfiguration, match="--item is '', allowed is small/train.en, "):
        command("download", tmp_path, run="small")
    with pytest.raises(BadData, match="cannot be adopted as download: small/train.en has sha256 .*, allowed is sha256"):
        command("download", mirror / "small" / "train.de", run="small", item="small/train.en", force=True)
