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
from infra.store.s3 import S3Store
from infra.store.s3_client import Bucket, NoSuchKey

INPUTS = {"shard/k0": "abc"}
FIRST = {"checkpoints/00000010/model.bin": b"ten", "metrics.jsonl": b'{"update": 10}\n', "job.log": b""}
SECOND = {"checkpoints/00000020/model.bin": b"twenty", "metrics.jsonl": b'{"update": 10}\n{"update": 20}\n'}


class Machine:
    """A machine with its own folder that trains ``train/k1``."""

    def __init__(self, s3: Server, root: Path) -> None:
        self.store = S3Store(root, Bucket(f"s3://{s3.bucket}/store"), 10**9)
        self.messages: list[str] = []
        self.store.say = self.messages.append
        self.folder, self.place = root, ""

    def start(self, attempt: str = "") -> dict[str, bytes]:
        """Start or resume the training; returns the files to resume from."""
        self.folder = self.store.begin("train", "k1", INPUTS, attempt)
        self.place = self.store._snapshots[self.folder]._place
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
            self.store.share(self.folder)
            time.sleep(0.01)
        return True

    def send(self, files: dict[str, bytes]) -> None:
        """Write these files and wait until the bucket's index names them."""
        self.write(files)
        assert self.sync_until(lambda: files.keys() <= self.index().keys()), self.messages

    def send_newest(self, files: dict[str, bytes]) -> None:
        """Send them, and more until this machine's index is the newest: the bucket's times have whole seconds."""
        self.send(files)
        count = 0
        while not self.is_newest():
            count += 1
            self.send({f"more-{count}": b""})

    def is_newest(self) -> bool:
        """Whether every other index in the bucket is older than this machine's."""
        listed = self.store.bucket.list("")
        times = {name: info.modified for name, info in listed.items() if name.endswith("/index.json")}
        mine = times.pop(f"{self.place}/index.json")
        return all(mine > other for other in times.values())

    def index(self) -> dict[str, str]:
        """This machine's index in the bucket: each file's name and its checksum."""
        try:
            found: dict[str, str] = json.loads(self.store.bucket.read(f"{self.place}/index.json"))["files"]
        except (NoSuchKey, ValueError, TypeError, KeyError):
            return {}
        return found


def wait_until_sent() -> None:
    for thread in threading.enumerate():
        if thread.name == "snapshot":
            thread.join()


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
    assert there.place.rpartition("/")[0] in there.messages[0]
    there.send_newest(SECOND)
    assert there.start().items() >= (FIRST | SECOND).items(), "its own folder, unchanged"
    assert len(there.messages) == 1


def test_a_machine_prefers_its_own_folder_when_it_is_further(s3: Server, here: Machine) -> None:
    here.send(FIRST)
    here.write(SECOND)
    again = Machine(s3, here.store.root)
    assert again.start() == FIRST | SECOND
    assert not again.messages
    again.send(SECOND)


def test_a_machine_that_is_further_does_not_take_the_newer_snapshot_of_a_slower_one(
    s3: Server, here: Machine, there: Machine
) -> None:
    there.start()
    here.send(FIRST | SECOND)
    there.send_newest(FIRST)
    again = Machine(s3, here.store.root)
    assert again.start() == FIRST | SECOND
    assert not again.messages
    third = Machine(s3, here.store.root.with_name("third"))
    assert third.start() == FIRST | SECOND, "the furthest, not the newest"


def test_two_machines_that_train_the_same_keep_a_snapshot_each(here: Machine, there: Machine, s3: Server) -> None:
    """Neither waits nor is stopped; a third one takes the newest."""
    there.start()
    here.send(FIRST)
    there.send(FIRST | {"b.bin": b"there"})
    here.send(FIRST | {"a.bin": b"here"})
    assert len({name.split("/")[1] for name in here.store.bucket.list("train/k1")}) == 2
    there.send_newest({"c.bin": b"newest"})
    third = Machine(s3, here.store.root.with_name("third"))
    assert third.start() == there.files()
    assert third.files()["c.bin"] == b"newest"
    there.store.seal(there.folder, {**DESCRIPTION, "stage": "train", "key": "k1"})
    assert not [name for name in here.store.bucket.list("train/k1") if name.startswith("resume-")]
    here.send({"d.bin": b"more"})
    lost = {name for name in here.index().values() if name not in "".join(here.store.bucket.list("train/k1"))}
    assert not lost, "what another machine removed is sent again"


def test_a_newest_snapshot_that_is_not_whole_gives_way_to_the_one_before(
    here: Machine, there: Machine, s3: Server
) -> None:
    there.start()
    here.send(FIRST)
    there.send_newest(SECOND)
    lost = there.index()["checkpoints/00000020/model.bin"]
    there.store.bucket.delete([f"{there.place}/{lost}"])
    third = Machine(s3, here.store.root.with_name("third"))
    assert third.start() == FIRST
    assert any("is not used" in text for text in third.messages)


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

    put = Bucket.put

    def lose(self: Bucket, name: str, content: bytes) -> None:
        if name.endswith("index.json"):
            lost.append(name)
            raise SystemExit
        put(self, name, content)

    with monkeypatch.context() as patch:
        patch.setattr(Bucket, "put", lose)
        here.write(SECOND)
        assert here.sync_until(lambda: bool(lost))
    assert there.start() == FIRST
    there.send(SECOND)


@pytest.mark.parametrize("links", [True, False])
def test_a_checkpoint_removed_while_it_is_sent_is_in_the_snapshot(
    here: Machine, there: Machine, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    """Otherwise no snapshot would ever be complete if sending takes longer than the job keeps a checkpoint."""

    def without_links(source: Path, target: Path) -> None:
        raise PermissionError

    if not links:
        monkeypatch.setattr(os, "link", without_links)
    monkeypatch.setattr(checkpoint_sync, "SMALL_BYTES", 2)
    real, lost = Bucket.upload, []

    def lose(self: Bucket, path: Path, *words: object) -> None:
        if not lost:
            lost.append(path)
            shutil.rmtree(here.folder / "checkpoints/00000010")
        real(self, path, *words)  # type: ignore[arg-type]

    monkeypatch.setattr(Bucket, "upload", lose)
    here.write(FIRST)
    here.store.share(here.folder)
    wait_until_sent()
    assert lost
    assert there.start() == FIRST
    here.send(SECOND)
    assert here.index().keys() == {*SECOND, "job.log"}
    assert not here.messages
    wait_until_sent()
    assert not list(here.store.root.glob("train/*.send"))


def test_a_large_log_that_grows_is_sent_as_it_was_read(
    here: Machine, there: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_sync, "SMALL_BYTES", 2)
    real = checkpoint_sync.sha256_of

    def grow(path: Path) -> str:
        found = real(path)
        with (here.folder / path.name).open("ab") as file:
            file.write(b"more\n")
        return found

    monkeypatch.setattr(
        checkpoint_sync, "sha256_of", lambda path: grow(path) if path.suffix == ".jsonl" else real(path)
    )
    here.send(FIRST)
    assert there.start() == FIRST


def test_altered_bytes_are_not_used(s3: Server, here: Machine, there: Machine) -> None:
    here.send(FIRST)
    digest = here.index()["checkpoints/00000010/model.bin"]
    [name] = [name for name in here.store.bucket.list("") if name.endswith(digest)]
    s3.client.put_object(Bucket=s3.bucket, Key=f"store/{name}", Body=b"TEN")
    assert there.start() == {}
    assert digest in there.messages[-1]
    assert not list(there.store.root.glob("train/*.fetch-*"))
    there.send(FIRST)
    there.send_newest(SECOND)
    assert here.start().items() >= (FIRST | SECOND).items()


@pytest.mark.parametrize("text", ["{", "[]", '{"attempt": ""}', '{"files": {"../x": "abc"}}'])
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
    assert "train k1" in here.messages[0]
    assert there.start() == FIRST


def test_another_machine_resumes_the_same_attempt_only(here: Machine, there: Machine) -> None:
    here.start("first")
    here.send(FIRST)
    assert there.start("first") == FIRST
    there.send_newest(SECOND)
    assert here.start().items() >= (FIRST | SECOND).items(), "without an attempt, a machine resumes from any"
    last = "checkpoints/00000030/model.bin"
    here.send_newest({last: b"30"})
    assert there.start("first")[last] == b"30", "the snapshot still belongs to that attempt"
    assert there.start("second") == {}


def test_sealing_while_a_snapshot_is_sent_leaves_none(here: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    real, entered = Bucket.put, []

    def slow(self: Bucket, name: str, content: bytes, **conditions: str) -> None:
        entered.append(name)
        time.sleep(0.5)
        real(self, name, content, **conditions)

    monkeypatch.setattr(Bucket, "put", slow)
    here.write(FIRST)
    assert here.sync_until(lambda: bool(entered))
    here.store.seal(here.folder, {**DESCRIPTION, "stage": "train", "key": "k1"})
    wait_until_sent()
    assert not [name for name in here.store.bucket.list("train/k1") if name.startswith("resume-")]


def test_an_old_snapshot_is_a_leftover(here: Machine) -> None:
    here.send(FIRST)
    assert not list(here.store.leftovers(time.time() - 3600))
    os.utime(here.folder, (0, 0))
    [left] = [each for each in here.store.leftovers(time.time() + 3600) if "/resume-" in each.place]
    left.remove()
    assert not here.store.bucket.list("train/k1")
