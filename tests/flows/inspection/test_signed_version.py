"""A signed version proves its model back to the archives; every altered, missing or foreign part is named."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from signing_keys import key_pair

from flows.commands.sign import sign
from flows.commands.verify import verify
from infra.errors import BadConfiguration, BadData
from infra.site import Site, open_store
from infra.store.signatures import read_private_key, read_public_keys, verified_statement
from infra.store.signatures import sign as signed
from infra.tracking.model_files import local_folder
from infra.tracking.registry import resolve

Edit = Callable[[list[dict[str, Any]]], list[dict[str, Any]]]


@pytest.fixture
def keys(small: Path, tmp_path: Path) -> tuple[Path, Path]:
    return key_pair(tmp_path / "keys", "us")


@pytest.fixture
def bundle(keys: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> Path:
    """The signatures of small/1."""
    sign("small@candidate", key=keys[0])
    return Path(capsys.readouterr().out.strip())


def model_folder() -> Path:
    site = Site.named()
    return local_folder(site.tracking, resolve(site.registry, "small/1")).parent


def rewrite(bundle: Path, keys: tuple[Path, Path], edit: Edit) -> None:
    """Change the statements and sign them again with the same key."""
    known, key = read_public_keys(keys[1]), read_private_key(keys[0])
    statements = [verified_statement(json.loads(line), known) for line in bundle.read_text().splitlines()]
    bundle.write_text("".join(f"{json.dumps(signed(each, key))}\n" for each in edit(statements)))


def of_stage(statements: list[dict[str, Any]], stage: str) -> dict[str, Any]:
    asked = [each["predicate"]["buildDefinition"]["externalParameters"] for each in statements]
    return next(each for each, words in zip(statements, asked, strict=True) if words.get("stage") == stage)


def test_signing_reads_no_registration_but_its_own_stage(
    keys: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = type(open_store(Site.named()))
    monkeypatch.setattr(store, "names", lambda _: pytest.fail("every artifact of the root was listed"))
    sign("small@candidate", key=keys[0])


def test_a_signed_version_is_proved_back_to_its_archives(
    bundle: Path, keys: tuple[Path, Path], finished_root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    verify("small/1", "small@candidate", key=keys[1], as_json=True)
    output = capsys.readouterr()
    proof = json.loads(output.out.splitlines()[-1])["versions"][0]
    assert proof["version"] == "small/1"
    assert {name.partition("/")[0] for name in proof["artifacts"]} >= {
        "download",
        "clean",
        "train",
        "average",
        "register",
    }
    manifests = {f"{each.stage}/{each.key}": each for each in open_store(Site.named()).sealed()}
    downloads = [each for name, each in manifests.items() if name.startswith("download/")]
    published = {each.arguments["file"]["path"]: each.arguments["file"]["sha256"] for each in downloads}
    assert {path: sums["sha256"] for path, sums in proof["archives"].items()} == published
    assert all(value in output.err for value in published.values())


def test_an_unsigned_version_and_a_foreign_key_are_refused(
    small: Path, keys: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(BadData, match="small/1 is unsigned"):
        verify("small/1", key=keys[1])
    foreign = key_pair(tmp_path / "foreign", "theirs")
    sign("small/1", key=foreign[0])
    with pytest.raises(BadData, match="small/1 is signed by an unknown key"):
        verify("small/1", key=keys[1])
    theirs, ours = Path(capsys.readouterr().out.strip()), small / "signatures"
    sign("small/1", key=keys[0])
    (mine,) = {*ours.iterdir()} - {theirs}
    mine.write_bytes(theirs.read_bytes())
    with pytest.raises(BadData, match="small/1: signed by an unknown key"):
        verify("small/1", key=keys[1])
    with pytest.raises(BadConfiguration, match="needs the name of a version"):
        verify(key=keys[1])


def test_a_version_has_the_bill_of_materials_of_its_environment(small: Path) -> None:
    bill = json.loads((model_folder() / "sbom.cdx.json").read_text())
    assert {"torch", "mlflow", "polars"} <= {each["name"] for each in bill["components"]}


def test_a_changed_or_added_file_of_the_model_is_named(bundle: Path, keys: tuple[Path, Path]) -> None:
    code = next(path for path in (model_folder() / "code").rglob("*.py") if path.stat().st_size)
    text = code.read_text()
    code.write_text(text + "import os\n")
    with pytest.raises(BadData, match=rf"code/.*{code.name} of the model differs from what was signed"):
        verify("small/1", key=keys[1])
    code.write_text(text)
    stranger = code.with_name("stranger.py")
    stranger.write_text("")
    with pytest.raises(BadData, match=r"stranger.py is in the model's folder and not signed: remove it"):
        verify("small/1", key=keys[1])
    stranger.unlink()
    verify("small/1", key=keys[1])


def test_a_changed_or_missing_line_of_the_signatures_is_named(bundle: Path, keys: tuple[Path, Path]) -> None:
    text = bundle.read_text()
    lines = text.splitlines(keepends=True)
    envelope = json.loads(lines[-1])
    envelope["payload"] = json.loads(lines[0])["payload"]
    bundle.write_text("".join([*lines[:-1], json.dumps(envelope)]))
    with pytest.raises(BadData, match="small/1: its signature is wrong"):
        verify("small/1", key=keys[1])
    bundle.write_text("".join(lines[:-1]))
    with pytest.raises(BadData, match="is not in the file of signatures"):
        verify("small/1", key=keys[1])
    for damaged in ("", "{", "3\n"):
        bundle.write_text(damaged)
        with pytest.raises(BadData, match="signatures"):
            verify("small/1", key=keys[1])


def test_each_link_of_the_chain_is_compared(bundle: Path, keys: tuple[Path, Path]) -> None:
    """Statements of our own key that do not fit together, as after a mistake, or taken from another version."""
    whole = bundle.read_text()

    def other_version(statements: list[dict[str, Any]]) -> list[dict[str, Any]]:
        statements[0]["predicate"]["buildDefinition"]["externalParameters"]["version"] = 2
        return statements

    def other_weights(statements: list[dict[str, Any]]) -> list[dict[str, Any]]:
        weights = next(s for s in statements[0]["subject"] if s["name"].startswith("artifacts/weights/model"))
        weights["digest"]["sha256"] = "0" * 64
        return statements

    def other_text(statements: list[dict[str, Any]]) -> list[dict[str, Any]]:
        of_stage(statements, "clean")["subject"][0]["digest"]["sha256"] = "0" * 64
        return statements

    def other_archive(statements: list[dict[str, Any]]) -> list[dict[str, Any]]:
        archive = of_stage(statements, "download")["predicate"]["buildDefinition"]["resolvedDependencies"][0]
        archive["digest"]["sha256"] = "0" * 64
        return statements

    for edit, message in (
        (other_version, "not small/1"),
        (other_weights, "the model's weights are not those of the average artifact"),
        (other_text, "the files of clean/.* are not those that were used"),
        (other_archive, "download/.* holds .* not the published 0000"),
        (lambda statements: statements[1:], "its first line is not about a version"),
    ):
        bundle.write_text(whole)
        rewrite(bundle, keys, edit)
        with pytest.raises(BadData, match=message):
            verify("small/1", key=keys[1])


def test_only_a_whole_lineage_is_signed(small: Path, keys: tuple[Path, Path]) -> None:
    store = open_store(Site.named())
    (train,) = [each for each in store.sealed() if each.stage == "train"]
    (store.folder("train", train.key) / "exit.json").write_text("{}")
    with pytest.raises(BadData, match=f"train/{train.key}: .*exit.json .*repeat the run"):
        sign("small/1", key=keys[0])
    store.remove("train", train.key)
    with pytest.raises(BadData, match=f"train/{train.key} is missing: repeat the run"):
        sign("small/1", key=keys[0])
