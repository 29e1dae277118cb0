"""Snapshots of unfinished work are complete or absent, and another machine resumes from them."""

import json
import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from s3_server import Server
from sealing import DESCRIPTION

from infra.store import checkpoint_sync
from infra.store.maintenance import leftovers
from infra.store.s3 import S3Store
from infra.store.s3_client import Bucket

INPUTS = {"shard/k0": "abc"}
FIRST = {"checkpoints/00000010/model.bin": b"ten", "metrics.jsonl": b'{"update": 10}\n', "job.log": b""}
SECOND = {"checkpoints/00000020/model.bin": b"twenty", "metrics.jsonl": b'{"update": 10}\n{"update": 20}\n'}


class Machine:
    """A machine with its own folder that trains ``train/k1``."""

    def __init__(self, s3: Server, root: Path) -> None:
        self.store = S3Store(root, Bucket(f"s3://{s3.bucket}/store"), 10**9)
        self.messages: list[str] = []
        self.store.say = self.messages.append
        self.folder = root

    def start(self, attempt: str = "") -> dict[str, bytes]:
        """Start or resume the training; returns the files to resume from."""
        self.folder = self.store.partial("train", "k1", INPUTS, attempt)
        return self.files()

    def files(self) -> dict[str, bytes]:
        found = (path for path in self.folder.rglob("*") if path.is_file())
        return {path.relative_to(self.folder).as_posix(): path.read_bytes() for path in found}

    def write(self, files: dict[str, bytes]) -> None:
        for name, content in files.items():
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_bytes(content)

    def sync_until(self, condition: Callable[[], bool], seconds: float = 30.0) -> bool:
        """Synchronize as a launcher does until the condition holds; returns whether it held in time."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                return False
            self.store.sync_checkpoint(self.folder)
            time.sleep(0.01)
        return True

    def send(self, files: dict[str, bytes]) -> None:
        """Write these files and wait until the bucket's index names them."""
        self.write(files)
        assert self.sync_until(lambda: files.keys() <= self.index().keys()), self.messages

    def index(self) -> dict[str, str]:
        """The index in the bucket: each file's name and its checksum."""
        names = [name for name in self.store.bucket.list("train/k1") if name.endswith("index.json")]
        try:
            found: dict[str, str] = json.loads(self.store.bucket.read(f"train/k1/{names[0]}"))["files"]
        except (IndexError, ValueError, TypeError, KeyError):
            return {}
        return found


@pytest.fixture(autouse=True)
def without_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_sync, "MIN_INTERVAL_SECONDS", 0.0)
    monkeypatch.setattr(checkpoint_sync, "INTERVAL_FACTOR", 0)


@pytest.fixture
def here(s3: Server, tmp_path: Path) -> Machine:
    machine = Machine(s3, tmp_path / "here")
    assert machine.start() == {}
    return machine


@pytest.fixture
def there(s3: Server, tmp_path: Path) -> Machine:
    return Machine(s3, tmp_path / "there")


def test_another_machine_resumes_from_a_snapshot(here: Machine, there: Machine) -> None:
    here.write({"checkpoints/00000020.partial/model.bin": b"twe", "model.json.partial": b"{"})
    here.send(FIRST)
    assert there.start() == FIRST, "unfinished files are left out"
    assert "train k1: resumes from what another machine sent to s3://" in there.messages[0]
    there.send(SECOND)
    assert there.start() == FIRST | SECOND, "its own folder, unchanged"
    assert len(there.messages) == 1


def test_another_machine_reads_a_file_of_unfinished_work(here: Machine, there: Machine) -> None:
    def metrics() -> bytes:
        return there.store.read_unfinished("train", "k1", "metrics.jsonl")

    assert metrics() == b""
    here.send(FIRST)
    assert metrics() == FIRST["metrics.jsonl"]
    here.send(SECOND)
    assert there.store.read_unfinished("train", "k1", "no.file") == b""
    (index,) = (name for name in there.store.bucket.list("train/k1") if name.endswith("index.json"))
    there.store.bucket.put(f"train/k1/{index.rpartition('/')[0]}/{here.index()['metrics.jsonl']}", b"altered")
    assert metrics() == b"", "altered bytes are not used"


def test_a_machine_prefers_its_own_folder_when_it_is_further(s3: Server, here: Machine) -> None:
    here.send(FIRST)
    here.write(SECOND)
    again = Machine(s3, here.store.root)
    assert again.start() == FIRST | SECOND
    assert not again.messages
    again.send(SECOND)


def test_of_two_machines_that_train_the_same_one_is_followed(here: Machine, there: Machine) -> None:
    here.send(FIRST)
    there.start()
    here.send({"a.bin": b"here"})
    there.write({"b.bin": b"there"})
    assert there.sync_until(lambda: "another machine makes the same and is followed" in there.messages[-1])
    here.send({"c.bin": b"here"})
    assert {"a.bin", "c.bin"} <= here.index().keys()
    assert "b.bin" not in here.index()


def test_stale_files_are_deleted(here: Machine) -> None:
    here.send(FIRST)
    shutil.rmtree(here.folder / "checkpoints" / "00000010")
    here.send(SECOND)

    def only_current_files() -> bool:
        names = {name.rpartition("/")[2] for name in here.store.bucket.list("train/k1")}
        return names == {"index.json", *here.index().values()}

    assert here.sync_until(only_current_files)
    assert here.index().keys() == {*SECOND, "job.log"}


def test_changes_of_logs_alone_are_not_sent(s3: Server, here: Machine) -> None:
    here.send(FIRST)
    here.sync_until(lambda: False, 0.3)
    s3.inject_faults()
    here.write({"metrics.jsonl": b"longer\n", "job.log": b"words"})
    here.sync_until(lambda: False, 0.3)
    assert s3.inject_faults() == 0


def test_a_machine_lost_while_it_sends_leaves_the_previous_snapshot(
    here: Machine, there: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.send(FIRST)
    lost: list[str] = []

    def lose(self: Bucket, name: str, content: bytes, replacing: str) -> None:
        lost.append(name)
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(Bucket, "put_if_match", lose)
        here.write(SECOND)
        assert here.sync_until(lambda: bool(lost))
    assert there.start() == FIRST
    there.send(SECOND)


def test_a_file_removed_while_it_is_sent_is_left_out(
    here: Machine, there: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_sync, "SMALL_BYTES", 2)
    real, lost = Bucket.upload, []

    def lose(self: Bucket, path: Path, *words: object) -> None:
        if not lost:
            lost.append(path)
            shutil.rmtree(path.parent)
        real(self, path, *words)  # type: ignore[arg-type]

    monkeypatch.setattr(Bucket, "upload", lose)
    here.write(FIRST)
    assert here.sync_until(lambda: bool(lost))
    here.send(SECOND)
    assert "checkpoints/00000010/model.bin" not in there.start()
    assert there.files().keys() == {*SECOND, "job.log"}
    assert not here.messages


def test_altered_bytes_are_not_used(s3: Server, here: Machine, there: Machine) -> None:
    here.send(FIRST)
    digest = here.index()["checkpoints/00000010/model.bin"]
    [name] = [name for name in here.store.bucket.list("") if name.endswith(digest)]
    s3.client.put_object(Bucket=s3.bucket, Key=f"store/{name}", Body=b"TEN")
    assert there.start() == {}
    assert f"{digest} does not match its sum; that snapshot is not used" in there.messages[-1]
    assert not list(there.store.root.glob("train/*.fetch-*"))
    there.send(FIRST)
    there.send(SECOND)
    assert here.start() == FIRST | SECOND, "the altered file is sent again"


@pytest.mark.parametrize(
    "text",
    ["{", "[]", '{"mark": "m"}', '{"mark": "m", "files": {"../x": "abc"}}', '{"mark": "m", "files": {"/x": "a"}}'],
)
def test_an_unusable_index_is_ignored_and_replaced(here: Machine, there: Machine, text: str) -> None:
    here.send(FIRST)
    [name] = [name for name in here.store.bucket.list("") if name.endswith("index.json")]
    here.store.bucket.put(name, text.encode())
    assert there.start() == {}
    there.send(SECOND)


def test_sending_to_a_refusing_bucket_is_tried_again_later(s3: Server, here: Machine, there: Machine) -> None:
    s3.inject_faults(status=403, code="AccessDenied", times=3, match="PUT")
    here.send(FIRST)
    assert len(here.messages) == 1
    assert "train k1: no snapshot in the bucket, trying again later: s3://" in here.messages[0]
    assert there.start() == FIRST


def test_another_machine_resumes_the_same_attempt_only(here: Machine, there: Machine) -> None:
    here.start("first")
    here.send(FIRST)
    assert there.start("first") == FIRST
    there.send(SECOND)
    assert here.start() == FIRST | SECOND, "without an attempt, a machine resumes from any"
    here.send({"last": b"30"})
    assert there.start("first") == FIRST | SECOND | {"last": b"30"}, "the snapshot still belongs to that attempt"
    assert there.start("second") == {}
    assert not here.store.bucket.list("train/k1")


def test_a_new_attempt_and_sealing_delete_the_snapshot(here: Machine, there: Machine) -> None:
    here.send(FIRST)
    assert there.start("new") == {}
    assert not here.store.bucket.list("train/k1")
    there.send(SECOND)
    there.store.seal(there.folder, {**DESCRIPTION, "stage": "train", "key": "k1"})
    assert not [name for name in here.store.bucket.list("train/k1") if name.startswith("resume-")]
    assert not list((there.store.root / "published").glob("*resume*"))


def test_sealing_while_a_snapshot_is_sent_leaves_none(here: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    real, entered = Bucket.put, []

    def slow(self: Bucket, name: str, content: bytes) -> None:
        entered.append(name)
        time.sleep(1)
        real(self, name, content)

    monkeypatch.setattr(Bucket, "put", slow)
    here.write(FIRST)
    assert here.sync_until(lambda: bool(entered))
    here.store.seal(here.folder, {**DESCRIPTION, "stage": "train", "key": "k1"})
    for thread in threading.enumerate():
        if thread.name == "snapshot":
            thread.join()
    assert not [name for name in here.store.bucket.list("train/k1") if name.startswith("resume-")]


def test_an_old_snapshot_is_a_leftover(here: Machine) -> None:
    here.send(FIRST)
    assert not list(leftovers(here.store, time.time() - 3600))
    os.utime(here.folder, (0, 0))
    [left] = [each for each in leftovers(here.store, time.time() + 3600) if "/resume-" in each.place]
    left.remove()
    assert not here.store.bucket.list("train/k1")


def test_a_snapshot_that_lacks_files_is_sent_whole_again(here: Machine, there: Machine) -> None:
    here.start()
    here.send(FIRST)
    lost = here.index()["checkpoints/00000010/model.bin"]
    prefix = next(name.rpartition("/")[0] for name in here.store.bucket.list("train/k1") if name.endswith(lost))
    here.store.bucket.delete([f"train/k1/{prefix}/{lost}"])
    assert there.start() == {}
    assert any("lacks files and is not used" in text for text in there.messages)
    there.send(FIRST | SECOND)
    assert there.store.bucket.read(f"train/k1/{prefix}/{lost}") == b"ten"


def test_what_a_note_claims_is_on_the_disk(here: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    sync, note = checkpoint_sync.sync, checkpoint_sync.Snapshot._write_note

    def record(path: Path) -> None:
        calls.append(path.name)
        sync(path)

    def write(snapshot: checkpoint_sync.Snapshot, mark: str = "") -> None:
        calls.append("note")
        note(snapshot, mark)

    monkeypatch.setattr(checkpoint_sync, "sync", record)
    monkeypatch.setattr(checkpoint_sync.Snapshot, "_write_note", write)
    here.start()
    here.send(FIRST)
    before = calls[: calls.index("note")]
    assert {"model.bin", "metrics.jsonl", "00000010", "checkpoints", here.folder.name} <= set(before)
