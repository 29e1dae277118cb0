"""A sealed artifact is complete or absent, and every altered byte is detected."""

import errno
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from sealing import DESCRIPTION, FILES, manifest_of, sealed

from infra.errors import BadData, DiskFault
from infra.processes.locks import try_file_lock
from infra.store.files import files_below, names_by_stage
from infra.store.local import LocalStore
from infra.store.manifest import MANIFEST, manifest_envelope


@pytest.mark.parametrize("name", FILES)
def test_each_altered_byte_is_seen_even_in_logs(tmp_path: Path, name: str) -> None:
    store = LocalStore(tmp_path)
    path = sealed(store).path() / name
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert name in store.damage(manifest_of(store))


def test_a_reader_who_cannot_write_sees_the_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore(tmp_path)
    (sealed(store).path() / "a.txt").write_bytes(b"altered")
    monkeypatch.setattr(store, "stamp_file", Mock(side_effect=PermissionError(errno.EACCES, "not yours")))
    assert store.damages(manifest_of(store)) == ["a.txt has 7 bytes, not 5"]


def test_content_ignores_logs_and_nothing_else(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    first = sealed(store, "k1")
    other_log = sealed(store, "k2", FILES | {"metrics.jsonl": b"later"})
    other_text = sealed(store, "k3", FILES | {"a.txt": b"beta"})
    assert first.content == other_log.content != other_text.content


def test_a_folder_without_a_readable_manifest_does_not_exist(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    folder = sealed(store).path()
    whole = (folder / MANIFEST).read_text()
    (folder / MANIFEST).write_text(whole.replace('"pairs": 3', '"pairs": 4'))
    assert store.find("clean", "k1") is None, "an altered fact"
    (folder / MANIFEST).write_text(whole)
    assert store.find("clean", "k1")
    (folder / MANIFEST).write_text("{")
    assert store.find("clean", "k1") is None
    (folder / MANIFEST).write_text(json.dumps({"stage": "clean"}))
    assert store.find("clean", "k1") is None


@pytest.mark.parametrize("number", [errno.ESTALE, errno.EMFILE])
def test_an_artifact_that_cannot_be_read_for_now_is_not_damaged(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(tmp_path)
    manifest = sealed(store).manifest
    assert manifest
    monkeypatch.setattr("infra.store.local.is_regular", Mock(side_effect=OSError(number, "not now")))
    monkeypatch.setattr("infra.store.files.is_regular", Mock(side_effect=OSError(number, "not now")))
    for look in (lambda: store.find("clean", "k1"), lambda: store.damages(manifest)):
        with pytest.raises((DiskFault, OSError), match="not now"):
            look()


def test_a_new_partial_removes_the_stale_one_of_its_key(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    stale = store.begin("clean", "k1", {})
    other = store.begin("clean", "k2", {})
    fresh = store.begin("clean", "k1", {})
    assert not stale.exists()
    assert fresh.exists()
    assert other.exists()


def test_an_interrupted_folder_is_resumed_only_over_the_same_inputs(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    folder = store.begin("train", "k1", {"shard/a": "c1"})
    (folder / "checkpoint").write_text("x")
    assert store.begin("train", "k1", {"shard/a": "c1"}) == folder
    assert (folder / "checkpoint").exists()
    assert not list(store.begin("train", "k1", {"shard/a": "c2"}).iterdir())
    assert not folder.exists()


def test_what_a_kill_leaves_of_a_removed_folder_is_not_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore(tmp_path)
    inputs = {"shard/a": "c1"}
    (store.begin("train", "k1", inputs) / "model.json").touch()
    monkeypatch.setattr(shutil, "rmtree", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        store.begin("train", "k1", {"shard/a": "c2"})
    monkeypatch.undo()
    assert not [*store.begin("train", "k1", inputs).iterdir()]


def test_a_leftover_that_was_resumed_since_it_was_found_stays(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    folders = [store.begin("train", key, {"": key}) for key in ("k1", "k2")]
    for folder in folders:
        os.utime(folder, (1, 1))
    found = [*store.leftovers(2.0)]
    (folders[0] / "checkpoint").touch()
    for each in found:
        each.remove()
    assert [folder.exists() for folder in folders] == [True, False]


def test_writes_that_were_cut_off_are_no_part_of_an_artifact(tmp_path: Path) -> None:
    folder = LocalStore(tmp_path).begin("train", "k1", {"": "k1"})
    (folder / "exit.json.partial").touch()
    (folder / "checkpoints.partial" / "10").mkdir(parents=True)
    (folder / "checkpoints.partial" / "10" / "weights").touch()
    (folder / "weights.partially").touch()
    made = LocalStore(tmp_path).seal(folder, {**DESCRIPTION, "stage": "train"})
    assert {path.name for path in made.folder.iterdir()} == {"manifest.json", "weights.partially"}


def test_an_attempt_resumes_only_its_own_folder_and_is_named_in_the_manifest(tmp_path: Path) -> None:
    store, inputs = LocalStore(tmp_path), {"shard/a": "c1"}
    folder = store.begin("train", "k1", inputs)

    def resumes(attempt: str) -> bool:
        """Whether ``attempt`` finds the checkpoint; creates it if it does not."""
        found = store.begin("train", "k1", inputs, attempt)
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


def test_an_artifact_over_another_ones_folder_is_neither(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    sealed(store, "k1")
    sealed(store, "k2", {"a.txt": b"other"})
    shutil.rmtree(tmp_path / "clean" / "k1")
    shutil.copytree(tmp_path / "clean" / "k2", tmp_path / "clean" / "k1")
    assert store.find("clean", "k1") is None
    assert store.has("clean", "k1")
    shutil.copytree(tmp_path / "clean" / "k2", tmp_path / "shard" / "k2")
    assert store.find("shard", "k2") is None


@pytest.mark.parametrize("field", ["arguments", "inputs", "facts", "files", "made", "content", "item", "seconds"])
@pytest.mark.parametrize("value", [None, [1], 3.5, {"a": None}])
def test_a_forged_manifest_counts_as_none(tmp_path: Path, field: str, value: Any) -> None:
    store = LocalStore(tmp_path)
    path = sealed(store).path() / MANIFEST
    manifest = manifest_of(store)
    accepted = (field == "seconds" and value == 3.5) or (
        field in ("arguments", "facts", "made") and value == {"a": None}
    )
    path.write_text(json.dumps(manifest_envelope(replace(manifest, **{field: value}))))
    assert (store.find("clean", "k1") is not None) == accepted


def test_a_deep_manifest_and_named_pipes_are_refused_at_once(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    folder = sealed(store, files={"empty": b""}).path()
    manifest = manifest_of(store)
    (folder / "empty").unlink()
    os.mkfifo(folder / "empty")
    assert store.damage(manifest) == "empty is not a regular file"
    (folder / MANIFEST).write_text("[" * 100_000)
    assert store.find("clean", "k1") is None
    (folder / MANIFEST).unlink()
    os.mkfifo(folder / MANIFEST)
    assert store.find("clean", "k1") is None


def test_files_that_the_manifest_does_not_list_are_moved_away_before_the_artifact_is_read(tmp_path: Path) -> None:
    messages: list[str] = []
    artifact = sealed(LocalStore(tmp_path))
    (artifact.folder / "deep" / "c.arrow").write_text("foreign")
    (artifact.folder / "checkpoints" / "99999999").mkdir(parents=True)
    (artifact.folder / "link").symlink_to(tmp_path)
    store = LocalStore(tmp_path)
    store.say = messages.append
    manifest = manifest_of(store)
    assert store.damages(manifest) == [
        f"{name} is not listed in its manifest" for name in ("checkpoints", "deep/c.arrow", "link")
    ]
    folder = store.artifact(manifest).path()
    assert sorted(path.name for path in folder.rglob("*")) == sorted([MANIFEST, "deep", *(Path(n).name for n in FILES)])
    (aside,) = folder.parent.glob("k1.unlisted-*")
    assert (aside / "deep" / "c.arrow").read_text() == "foreign"
    assert len(messages) == 3
    assert store.damages(manifest) == []


def test_an_altered_byte_behind_an_unchanged_stamp_is_found_before_the_artifact_is_read(tmp_path: Path) -> None:
    path = sealed(LocalStore(tmp_path)).path() / "a.txt"
    status = path.stat()
    path.write_bytes(b"alphA")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    store = LocalStore(tmp_path)
    manifest = manifest_of(store)
    assert store.damage(manifest) == "", "a hit trusts size, time and inode"
    with pytest.raises(BadData, match=r"a\.txt .*k1\.bad-"):
        store.artifact(manifest).path()
    assert store.find("clean", "k1") is None, "the next run makes it again"


def test_of_several_replaced_artifacts_the_newest_whole_one_of_the_attempt_is_brought_back(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    for time, attempt in enumerate(("first", "second", "first")):
        artifact = sealed(store, files={"a.txt": attempt.encode()}, made={"attempt": attempt})
        replaced = artifact.folder.rename(artifact.folder.with_name(f"k1.replaced-{time}"))
        os.utime(replaced, (time, time))
    (replaced / MANIFEST).unlink()  # its removal was cut short
    assert not store.restore("clean", "k1", "third")
    assert store.restore("clean", "k1", "first")
    assert manifest_of(store).made["attempt"] == "first"
    store.folder("clean", "k1").rename(tmp_path / "away")
    assert store.restore("clean", "k1")
    assert manifest_of(store).made["attempt"] == "second"


def test_an_artifact_that_is_being_replaced_is_not_moved_aside(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    artifact = sealed(store)
    reader = LocalStore(tmp_path).artifact(manifest_of(store))
    (artifact.folder / "a.txt").write_text("ALPHA")
    with try_file_lock(store.lock_file("clean", "k1")), pytest.raises(BadData):
        reader.path()
    assert store.has("clean", "k1")
    with pytest.raises(BadData, match=r"k1\.bad-"):
        reader.path()


def test_a_replaced_artifact_is_not_read_under_the_name_of_the_old_one(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    artifact = sealed(store)
    assert artifact.path()
    assert not artifact.is_replaced()
    sealed(LocalStore(tmp_path), files={"a.txt": b"beta"})
    assert artifact.is_replaced()
    with pytest.raises(BadData):
        artifact.path()


def test_folders_that_are_removed_meanwhile_are_passed_over(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    found = files_below(tmp_path)
    first = next(found)
    for other in {tmp_path / "a", tmp_path / "b"} - {first.parent}:
        shutil.rmtree(other)
    assert [*found] == []


def test_folders_of_others_in_a_root_are_not_opened(tmp_path: Path) -> None:
    for name in ("clean", "lost+found", ".snapshots", "prefect", "service"):
        (tmp_path / name).mkdir()
    assert [*names_by_stage(tmp_path)] == [("clean", [])], "the first folder of a disk is its own, for root alone"
