"""Artifacts in a bucket are complete or absent, every altered byte is detected, and one of several writers wins."""

import json
import os
import threading
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from s3_server import Server
from sealing import DESCRIPTION, FILES, manifest_of, sealed

from infra.errors import BadConfiguration, BadData, NetworkFault
from infra.store.local import LocalStore
from infra.store.manifest import MANIFEST
from infra.store.s3 import S3Store
from infra.store.s3_client import AccessRefused, Bucket


def objects(store: S3Store) -> dict[str, str]:
    """Names in the bucket, by the last part for files of an artifact."""
    return {name.rpartition("/")[2]: name for name in store.bucket.list("")}


def change(s3: Server, store: S3Store, name: str, content: bytes) -> None:
    s3.client.put_object(Bucket=s3.bucket, Key=f"store/{objects(store)[name]}", Body=content)


def test_another_machine_has_the_same_artifact(store: S3Store, other: S3Store) -> None:
    artifact = sealed(store)
    for present in (store, other):
        manifest = manifest_of(present)
        assert present.damage(manifest) == ""
        assert present.artifact(manifest) == (artifact if present is store else present.artifact(manifest))
        assert [m.key for m in present.list()] == ["k1"]
        folder = present.artifact(manifest).path()
        assert {n: (folder / n).read_bytes() for n in FILES} == FILES
        assert [p.name for p in (present.root / "clean").iterdir()] == ["k1"]
        assert LocalStore(present.root).find("clean", "k1") == manifest, (
            "the downloaded copy is an artifact of this disk"
        )


def test_a_plan_sends_one_listing_request_and_fetches_nothing(s3: Server, store: S3Store, other: S3Store) -> None:
    sealed(store)
    other.find("clean", "k1")
    s3.inject_faults()
    assert other.damage(manifest_of(other)) == ""
    assert s3.inject_faults() == 1
    assert not (other.root / "clean").exists()


@pytest.mark.parametrize("name", FILES)
def test_each_altered_object_is_seen_even_in_logs(s3: Server, store: S3Store, name: str) -> None:
    sealed(store)
    last = name.rpartition("/")[2]
    content = bytearray(FILES[name])
    content[-1] ^= 1
    change(s3, store, last, bytes(content))
    assert store.damage(manifest_of(store)) == f"{name} was altered"
    change(s3, store, last, FILES[name][:-1])
    assert f"{len(FILES[name]) - 1} bytes, not {len(FILES[name])}" in store.damage(manifest_of(store))
    store.bucket.delete([objects(store)[last]])
    assert store.damage(manifest_of(store)) == f"{name} is not in the store"


def test_the_same_bytes_under_another_etag_are_no_damage(s3: Server, store: S3Store) -> None:
    sealed(store)
    for name, place in objects(store).items():
        if name in FILES:
            upload = s3.client.create_multipart_upload(Bucket=s3.bucket, Key=f"store/{place}")
            words = {"Bucket": s3.bucket, "Key": upload["Key"], "UploadId": upload["UploadId"]}
            part = s3.client.upload_part(**words, PartNumber=1, Body=FILES[name])
            parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
            s3.client.complete_multipart_upload(**words, MultipartUpload=parts)
    requests = []
    for _ in range(2):
        s3.inject_faults()
        assert store.damage(manifest_of(store)) == ""
        requests.append(s3.inject_faults())
    assert requests[0] > len(FILES)
    assert requests[1] == 1, "a list: no file is read again"


def test_bytes_that_arrive_altered_quarantine_the_artifact(s3: Server, store: S3Store, other: S3Store) -> None:
    sealed(store)
    artifact = other.artifact(manifest_of(other))
    change(s3, store, "a.txt", b"alphA")
    with pytest.raises(BadData, match=r"clean/k1/\w+/a.txt"):
        artifact.path()
    assert other.find("clean", "k1") is None
    assert not list((other.root / "clean").iterdir()), "no part of it stays"
    assert store.restore("clean", "k1"), "a machine with an intact copy restores it"
    assert (other.artifact(manifest_of(other)).path() / "a.txt").read_bytes() == b"alpha"


def test_a_reader_who_cannot_write_sees_the_damage(
    s3: Server, store: S3Store, other: S3Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    sealed(store)
    artifact = other.artifact(manifest_of(other))
    change(s3, store, "a.txt", b"alphA")
    monkeypatch.setattr(other, "quarantine", Mock(side_effect=AccessRefused("not yours")))
    assert "a.txt" in other.damages(manifest_of(other))[0]
    with pytest.raises(BadData, match="does not match its checksum; `repro verify`"):
        artifact.path()


@pytest.mark.parametrize("same", [True, False])
def test_two_machines_that_make_one_key_share_one_artifact(store: S3Store, other: S3Store, same: bool) -> None:
    mine, theirs = (each.begin("clean", "k1", {}) for each in (store, other))
    (mine / "a.txt").write_bytes(b"mine")
    (theirs / "a.txt").write_bytes(b"mine" if same else b"theirs")
    won = store.seal(mine, DESCRIPTION)
    said: list[str] = []
    other.say = said.append
    lost = other.seal(theirs, DESCRIPTION)
    assert lost.content == won.content
    assert (lost.path() / "a.txt").read_bytes() == b"mine"
    assert "clean k1" in said[0]
    assert sorted(store.bucket.list("clean/k1")) == sorted(names_of_manifest(store))


def test_what_another_machine_sealed_after_the_look_is_not_quarantined(
    s3: Server, store: S3Store, other: S3Store
) -> None:
    sealed(store)
    change(s3, store, "a.txt", b"alphA")
    assert "a.txt was altered" in other.damage(manifest_of(other))
    again = sealed(store)
    other.quarantine("clean", "k1")
    assert (again.path() / "a.txt").read_bytes() == b"alpha"
    assert manifest_of(store).content == again.content
    assert sealed(other).content == again.content


def test_a_reader_of_the_artifact_before_leaves_the_one_that_is_being_sent(
    store: S3Store, other: S3Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    sealed(store)
    reader = machine_of(store)
    before = reader.artifact(manifest_of(reader))
    waits, upload = threading.Event(), store.bucket.upload
    reader.say = lambda text: waits.set()
    failures: list[BaseException] = []

    def read() -> None:
        try:
            before.path()
        except BadData as error:
            failures.append(error)
        finally:
            waits.set()

    thread = threading.Thread(target=read)

    def upload_beside_the_reader(path: Path, name: str) -> None:
        if not thread.ident:
            thread.start()
            assert waits.wait(60)
        upload(path, name)

    monkeypatch.setattr(store.bucket, "upload", upload_beside_the_reader)
    again = sealed(store, files={"a.txt": b"new"})
    thread.join(60)
    assert (other.artifact(manifest_of(other)).path() / "a.txt").read_bytes() == b"new"
    assert manifest_of(other).content == again.content
    assert len(failures) == 1


def machine_of(store: S3Store) -> S3Store:
    """Another process on the same machine."""
    return S3Store(store.root, Bucket(store.bucket.address), 10**9)


def names_of_manifest(store: S3Store) -> list[str]:
    document = json.loads(store.bucket.read(f"clean/k1/{MANIFEST}"))
    return [MANIFEST, *(f"{document['id']}/{name}" for name in document["manifest"]["files"])]


def test_restore_sends_an_artifact_whose_upload_failed(s3: Server, store: S3Store, other: S3Store) -> None:
    s3.inject_faults(status=403, code="AccessDenied", times=99, match="manifest.json")
    with pytest.raises(BadConfiguration):
        sealed(store)
    s3.inject_faults()
    assert store.find("clean", "k1") is None
    assert not other.restore("clean", "k1")
    assert not store.restore("clean", "k1", "an attempt that did not make it")
    assert store.restore("clean", "k1")
    assert not store.restore("clean", "k1"), "it exists already"
    assert other.find("clean", "k1")


def test_restore_sends_what_was_made_to_replace_an_artifact(s3: Server, store: S3Store) -> None:
    sealed(store, made={"at": "2026-11-26T10:00:00+00:00"})
    assert not store.restore("clean", "k1"), "it was sent"
    store._local.begin("clean", "k1", {}, "forced")
    copy = sealed(store._local, files={"a.txt": b"new"}, made={"at": "2026-11-26T12:00:00+00:00"})
    assert not store.restore("clean", "k1", "an attempt that did not make it")
    assert store.restore("clean", "k1")
    assert manifest_of(machine_of(store)).content == copy.content
    sealed(store._local, made={"at": "2026-11-26T11:00:00+00:00"})
    assert not store.restore("clean", "k1"), "the bucket has a newer one"


def test_a_refusing_and_an_absent_store_are_faults_without_secrets(
    s3: Server, store: S3Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BadConfiguration, match="nobodys-bucket"):
        S3Store(tmp_path, Bucket("s3://nobodys-bucket/x"), 1).find("clean", "k1")
    s3.inject_faults(status=403, code="AccessDenied", times=1)
    with pytest.raises(BadConfiguration):
        store.find("clean", "k1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://someone:hidden@127.0.0.1:9")
    monkeypatch.setattr("infra.store.s3_client.MAX_ATTEMPTS", 1)
    with pytest.raises(NetworkFault) as gone:
        S3Store(tmp_path, Bucket(store.bucket.address), 1).find("clean", "k1")
    assert "hidden" not in f"{gone.value}"


def test_the_cache_keeps_its_limit_and_what_is_in_use(s3: Server, store: S3Store, tmp_path: Path) -> None:
    for n in range(4):
        sealed(store, f"k{n}", {"a.bin": bytes([n]) * 1000})
    small = S3Store(tmp_path / "small", Bucket(store.bucket.address), limit_bytes=2500)

    def fetch(key: str) -> Path:
        return small.artifact(manifest_of(small, key=key)).path()

    def copies() -> set[str]:
        return {path.name for path in (small.root / "clean").iterdir()}

    for key in ("k0", "k1", "k2"):
        fetch(key)
    assert copies() == {"k0", "k1", "k2"}, "more than allowed, but all are in use"
    small._cache.release()
    assert copies() == {"k1", "k2"}
    fetch("k1")
    small._cache.release()
    fetch("k3")
    assert copies() == {"k1", "k3"}, "the least recently used copy is removed"
    only = small.local().begin("clean", "mine", {})
    (only / "a.bin").write_bytes(bytes(3000))
    small.local().seal(only, {**DESCRIPTION, "key": "mine"})
    small._cache.release()
    assert copies() == {"mine"}, "the only copy of an artifact stays"


def test_what_was_just_made_is_removed_last_and_not_while_it_is_sent(
    store: S3Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sealed(store, "old", {"a.bin": bytes(1000)})
    small = S3Store(tmp_path / "small", Bucket(store.bucket.address), limit_bytes=1500)
    small.artifact(manifest_of(small, key="old")).path()
    sealed(small, "new", {"a.bin": bytes(1000)})
    assert [path.name for path in (small.root / "clean").iterdir()] == ["new"]
    publish = small._publish

    def while_another_process_needs_space(*words: Any) -> Any:
        S3Store(small.root, Bucket(store.bucket.address), limit_bytes=1)._cache.evict(0)
        return publish(*words)

    monkeypatch.setattr(small, "_publish", while_another_process_needs_space)
    assert (sealed(small, "new", {"a.bin": bytes(1000)}).path() / "a.bin").stat().st_size == 1000


def test_restore_sends_no_altered_copy_even_if_its_time_is_as_before(store: S3Store) -> None:
    path = sealed(store).path() / "a.txt"
    status = path.stat()
    path.write_bytes(b"alphA")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    store.find("clean", "k1")
    store.quarantine("clean", "k1")
    assert not store.restore("clean", "k1")
    assert store.find("clean", "k1") is None


def test_an_artifact_that_was_not_read_is_not_replaced_by_an_old_copy(
    s3: Server, store: S3Store, other: S3Store
) -> None:
    sealed(store)
    again = sealed(other, files={"a.txt": b"new"})
    present = machine_of(store)
    new = present.artifact(manifest_of(present))
    assert new.content == again.content
    assert not new.is_replaced(), "its copy on this machine is that of before, which nobody read"
    new.path()
    s3.inject_faults(status=403, code="AccessDenied", times=99)
    assert not new.is_replaced(), "what was read is here, also while the bucket is away"
    s3.inject_faults()
    sealed(machine_of(store), files={"a.txt": b"newer"})
    assert new.is_replaced()
    unread = machine_of(other).artifact(manifest_of(machine_of(other)))
    sealed(machine_of(store), files={"a.txt": b"newest"})
    assert unread.is_replaced(), "the bucket has another one by now"


def test_a_small_file_is_received_again_when_it_was_sent_again(s3: Server, store: S3Store, other: S3Store) -> None:
    name = "runs/demo/1.json"
    for text in ("RUNNING", "FINISHED."):
        (store.root / "runs" / "demo").mkdir(parents=True, exist_ok=True)
        (store.root / name).write_text(text)
        store.share(store.root / name)
        other.fetch_newer("runs")
        assert (other.root / name).read_text() == text
    s3.inject_faults()
    other.fetch_newer("runs")
    assert s3.inject_faults() == 1, "the listing alone"
    (other.root / name).write_text("written here, and not sent")
    other.fetch_newer("runs")
    assert (other.root / name).read_text() == "written here, and not sent"


def test_an_object_that_is_no_record_does_not_hide_the_others(s3: Server, store: S3Store) -> None:
    for name, content in {
        "demo": b"x",
        "demo/1.json": b"{}",
        "demo/2.json": b"\xff",
        "demo/1.json/x.json": b"{}",
    }.items():
        s3.client.put_object(Bucket=s3.bucket, Key=f"store/runs/{name}", Body=content)
    store.fetch_newer("runs")
    assert (store.root / "runs" / "demo" / "1.json").read_text() == "{}"
    assert [path.name for path in (store.root / "runs" / "demo").iterdir()] == ["1.json"]
