"""A sealed artifact is complete or absent, and every altered byte is detected."""

import json
import os
import shutil
from pathlib import Path

import pytest
from sealing import DESCRIPTION, FILES, manifest_of, sealed

from infra.store.local import Store
from infra.store.manifest import MANIFEST


def test_a_sealed_artifact_is_whole_and_leaves_no_other_folder(tmp_path: Path) -> None:
    store = Store(tmp_path)
    artifact = sealed(store)
    manifest = manifest_of(store)
    assert store.damage(manifest) == ""
    assert store.artifact(manifest) == artifact
    assert [p.name for p in (tmp_path / "clean").iterdir()] == ["k1"]


@pytest.mark.parametrize("name", FILES)
def test_each_altered_byte_is_seen_even_in_logs(tmp_path: Path, name: str) -> None:
    store = Store(tmp_path)
    path = sealed(store).path() / name
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert name in store.damage(manifest_of(store))


def test_a_lost_or_short_file_is_damage(tmp_path: Path) -> None:
    store = Store(tmp_path)
    folder = sealed(store).path()
    manifest = manifest_of(store)
    (folder / "a.txt").write_bytes(b"alp")
    assert "3 bytes, not 5" in store.damage(manifest)
    (folder / "a.txt").unlink()
    assert "a.txt cannot be read" in store.damage(manifest)


def test_a_change_that_keeps_the_stamp_is_found_by_hashing(tmp_path: Path) -> None:
    store = Store(tmp_path)
    path = sealed(store).path() / "a.txt"
    status = path.stat()
    with path.open("r+b") as file:
        file.write(b"alphA")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    manifest = manifest_of(store)
    assert store.damage(manifest) == "", "by its stamp it is the same"
    shutil.rmtree(tmp_path / "stamps")
    assert store.damage(manifest) == "a.txt was altered"


def test_content_ignores_logs_and_nothing_else(tmp_path: Path) -> None:
    store = Store(tmp_path)
    first = sealed(store, "k1")
    other_log = sealed(store, "k2", FILES | {"metrics.jsonl": b"later"})
    other_text = sealed(store, "k3", FILES | {"a.txt": b"beta"})
    assert first.content == other_log.content != other_text.content


def test_a_folder_without_a_readable_manifest_does_not_exist(tmp_path: Path) -> None:
    store = Store(tmp_path)
    folder = sealed(store).path()
    whole = (folder / MANIFEST).read_text()
    (folder / MANIFEST).write_text(whole.replace('"pairs": 3', '"pairs": 4'))
    assert store.manifest("clean", "k1") is None, "an altered fact"
    (folder / MANIFEST).write_text(whole)
    assert store.manifest("clean", "k1")
    (folder / MANIFEST).write_text("{")
    assert store.manifest("clean", "k1") is None
    (folder / MANIFEST).write_text(json.dumps({"stage": "clean"}))
    assert store.manifest("clean", "k1") is None


def test_a_new_partial_removes_the_stale_one_of_its_key(tmp_path: Path) -> None:
    store = Store(tmp_path)
    stale = store.partial("clean", "k1", {})
    other = store.partial("clean", "k2", {})
    fresh = store.partial("clean", "k1", {})
    assert not stale.exists()
    assert fresh.exists()
    assert other.exists()


def test_sealing_again_replaces_the_artifact(tmp_path: Path) -> None:
    store = Store(tmp_path)
    sealed(store)
    again = sealed(store, files={"a.txt": b"new"})
    assert (again.path() / "a.txt").read_bytes() == b"new"
    assert [p.name for p in (tmp_path / "clean").iterdir()] == ["k1"]


def test_an_interrupted_folder_is_resumed_only_over_the_same_inputs(tmp_path: Path) -> None:
    store = Store(tmp_path)
    folder = store.partial("train", "k1", {"shard/a": "c1"})
    (folder / "checkpoint").write_text("x")
    assert store.partial("train", "k1", {"shard/a": "c1"}) == folder
    assert (folder / "checkpoint").exists()
    assert not list(store.partial("train", "k1", {"shard/a": "c2"}).iterdir())
    assert not folder.exists()


def test_an_attempt_resumes_only_its_own_folder_and_is_named_in_the_manifest(tmp_path: Path) -> None:
    store, inputs = Store(tmp_path), {"shard/a": "c1"}
    folder = store.partial("train", "k1", inputs)

    def resumes(attempt: str) -> bool:
        """Whether ``attempt`` finds the checkpoint; creates it if it does not."""
        found = store.partial("train", "k1", inputs, attempt)
        assert found == folder, "a queued job is identified by its folder"
        found_checkpoint = (found / "checkpoint").exists()
        (found / "checkpoint").write_text("x")
        return found_checkpoint

    assert not resumes("")
    assert [resumes("first"), resumes("first"), resumes("")] == [False, True, True]
    assert resumes("first"), "a resume without an attempt leaves the folder to its attempt"
    assert [resumes("second"), resumes("first")] == [False, False]
    store.seal(folder, {**DESCRIPTION, "stage": "train", "key": "k1"})
    assert manifest_of(store, "train", "k1").made["attempt"] == "first"
    assert not resumes(""), "a new try"
    store.seal(folder, {**DESCRIPTION, "stage": "train", "key": "k1"})
    assert "attempt" not in manifest_of(store, "train", "k1").made
