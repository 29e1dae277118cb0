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
        self.store = S3Store(root, Bucket(f"s3://{s3.bucket}/house"), 10**9)
        self.said: list[str] = []
        self.store.say = self.said.append
        self.folder = root

    def begin(self, attempt: str = "") -> dict[str, bytes]:
        """Begin or resume; gives the files to resume from."""
        self.folder = self.store.partial("train", "k1", INPUTS, attempt)
        return self.files()

    def files(self) -> dict[str, bytes]:
        found = (path for path in self.folder.rglob("*") if path.is_file())
        return {path.relative_to(self.folder).as_posix(): path.read_bytes() for path in found}

    def write(self, files: dict[str, bytes]) -> None:
        for name, content in files.items():
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_bytes(content)

    def keep(self, happens: Callable[[], bool], seconds: float = 30.0) -> bool:
        """Poll as a launcher does until something happens; whether it did in time."""
        deadline = time.monotonic() + seconds
        while not happens():
            if time.monotonic() > deadline:
                return False
            self.store.sync_checkpoint(self.folder)
            time.sleep(0.01)
        return True

    def sent(self, files: dict[str, bytes]) -> None:
        """Write these files and wait until the bucket's index names them."""
        self.write(files)
        assert self.keep(lambda: files.keys() <= self.index().keys()), self.said

    def index(self) -> dict[str, str]:
        """Sums by name, as the bucket has them."""
        names = [name for name in self.store.bucket.list("train/k1") if name.endswith("index.json")]
        try:
            found: dict[str, str] = json.loads(self.store.bucket.read(f"train/k1/{names[0]}"))["files"]
        except (IndexError, ValueError, TypeError, KeyError):
            return {}
        return found


@pytest.fixture(autouse=True)
def restless(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_sync, "MIN_INTERVAL_SECONDS", 0.0)
    monkeypatch.setattr(checkpoint_sync, "INTERVAL_FACTOR", 0)


@pytest.fixture
def here(s3: Server, tmp_path: Path) -> Machine:
    machine = Machine(s3, tmp_path / "here")
    assert machine.begin() == {}
    return machine


@pytest.fixture
def there(s3: Server, tmp_path: Path) -> Machine:
    return Machine(s3, tmp_path / "there")


def test_another_machine_resumes_from_a_snapshot(here: Machine, there: Machine) -> None:
    here.write({"checkpoints/00000020.partial/model.bin": b"twe", "model.json.partial": b"{"})
    here.sent(FIRST)
    assert there.begin() == FIRST, "what was being written is left out"
    assert "train k1: resumes from what another machine sent to s3://" in there.said[0]
    there.sent(SECOND)
    assert there.begin() == FIRST | SECOND, "its own folder, as it was"
    assert len(there.said) == 1


def test_a_machine_resumes_from_its_own_folder_which_may_be_further(s3: Server, here: Machine) -> None:
    here.sent(FIRST)
    here.write(SECOND)
    again = Machine(s3, here.store.root)
    assert again.begin() == FIRST | SECOND
    assert not again.said
    again.sent(SECOND)


def test_a_machine_that_comes_back_takes_a_newer_snapshot(s3: Server, here: Machine, there: Machine) -> None:
    here.sent(FIRST)
    there.begin()
    there.sent(SECOND)
    assert Machine(s3, here.store.root).begin() == FIRST | SECOND


def test_of_two_that_make_the_same_one_is_followed(here: Machine, there: Machine) -> None:
    here.sent(FIRST)
    there.begin()
    here.sent({"a.bin": b"here"})
    there.write({"b.bin": b"there"})
    assert there.keep(lambda: "another machine makes the same and is followed" in there.said[-1])
    here.sent({"c.bin": b"here"})
    assert {"a.bin", "c.bin"} <= here.index().keys()
    assert "b.bin" not in here.index()


def test_stale_files_are_deleted(here: Machine) -> None:
    here.sent(FIRST)
    shutil.rmtree(here.folder / "checkpoints" / "00000010")
    here.sent(SECOND)
    names = {name.rpartition("/")[2] for name in here.store.bucket.list("train/k1")}
    deadline = time.monotonic() + 30
    while names != {"index.json", *here.index().values()} and time.monotonic() < deadline:
        names = {name.rpartition("/")[2] for name in here.store.bucket.list("train/k1")}
    assert names == {"index.json", *here.index().values()}
    assert here.index().keys() == {*SECOND, "job.log"}


def test_changed_logs_alone_are_not_sent(s3: Server, here: Machine) -> None:
    here.sent(FIRST)
    here.keep(lambda: False, 0.3)
    s3.misbehave()
    here.write({"metrics.jsonl": b"longer\n", "job.log": b"words"})
    here.keep(lambda: False, 0.3)
    assert s3.misbehave() == 0


def test_a_machine_lost_while_it_sends_leaves_the_previous_snapshot(
    here: Machine, there: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.sent(FIRST)
    lost: list[str] = []

    def lose(self: Bucket, name: str, content: bytes, replacing: str) -> None:
        lost.append(name)
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(Bucket, "put_if_match", lose)
        here.write(SECOND)
        assert here.keep(lambda: bool(lost))
    assert there.begin() == FIRST
    there.sent(SECOND)


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
    assert here.keep(lambda: bool(lost))
    here.sent(SECOND)
    assert "checkpoints/00000010/model.bin" not in there.begin()
    assert there.files().keys() == {*SECOND, "job.log"}
    assert not here.said


def test_altered_bytes_are_not_used(s3: Server, here: Machine, there: Machine) -> None:
    here.sent(FIRST)
    digest = here.index()["checkpoints/00000010/model.bin"]
    [name] = [name for name in here.store.bucket.list("") if name.endswith(digest)]
    s3.client.put_object(Bucket=s3.bucket, Key=f"house/{name}", Body=b"TEN")
    assert there.begin() == {}
    assert f"{digest} does not match its sum; that snapshot is not used" in there.said[-1]
    assert not list(there.store.root.glob("train/*.fetch-*"))
    there.sent(FIRST)
    there.sent(SECOND)
    assert here.begin() == FIRST | SECOND, "the altered file was sent again"


@pytest.mark.parametrize(
    "text",
    ["{", "[]", '{"mark": "m"}', '{"mark": "m", "files": {"../x": "abc"}}', '{"mark": "m", "files": {"/x": "a"}}'],
)
def test_an_unusable_index_is_ignored_and_replaced(here: Machine, there: Machine, text: str) -> None:
    here.sent(FIRST)
    [name] = [name for name in here.store.bucket.list("") if name.endswith("index.json")]
    here.store.bucket.put(name, text.encode())
    assert there.begin() == {}
    there.sent(SECOND)


def test_a_bucket_that_does_not_answer_is_tried_again_later(s3: Server, here: Machine, there: Machine) -> None:
    s3.misbehave(status=403, code="AccessDenied", times=3, match="PUT")
    here.sent(FIRST)
    assert len(here.said) == 1
    assert "train k1: no snapshot in the bucket, trying again later: s3://" in here.said[0]
    assert there.begin() == FIRST


def test_another_machine_resumes_the_same_attempt_only(here: Machine, there: Machine) -> None:
    here.begin("first")
    here.sent(FIRST)
    assert there.begin("first") == FIRST
    there.sent(SECOND)
    assert here.begin() == FIRST | SECOND, "without an attempt, from anyone's"
    here.sent({"last": b"30"})
    assert there.begin("first") == FIRST | SECOND | {"last": b"30"}, "it is still that attempt"
    assert there.begin("second") == {}
    assert not here.store.bucket.list("train/k1")


def test_a_new_attempt_and_sealing_delete_the_snapshot(here: Machine, there: Machine) -> None:
    here.sent(FIRST)
    assert there.begin("new") == {}
    assert not here.store.bucket.list("train/k1")
    there.sent(SECOND)
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
    assert here.keep(lambda: bool(entered))
    here.store.seal(here.folder, {**DESCRIPTION, "stage": "train", "key": "k1"})
    for thread in threading.enumerate():
        if thread.name == "snapshot":
            thread.join()
    assert not [name for name in here.store.bucket.list("train/k1") if name.startswith("resume-")]


def test_an_old_snapshot_is_a_leftover(here: Machine) -> None:
    here.sent(FIRST)
    assert not list(leftovers(here.store, time.time() - 3600))
    os.utime(here.folder, (0, 0))
    [left] = [each for each in leftovers(here.store, time.time() + 3600) if "/resume-" in each.place]
    left.remove()
    assert not here.store.bucket.list("train/k1")
