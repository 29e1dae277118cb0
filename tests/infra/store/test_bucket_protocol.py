"""What machines promise each other in a bucket with the requests that every S3 store has, and what ends a run early."""

import os
import subprocess
import sys
import time

import pytest
from patience import wait_for
from s3_server import Server
from sealing import DESCRIPTION, manifest_of, sealed

from infra.errors import BadConfiguration, NoSpace
from infra.store.manifest import MANIFEST
from infra.store.s3 import S3Store
from infra.store.s3_client import Bucket

SEAL = """
import sys
from pathlib import Path
from sealing import sealed
from infra.store.s3 import S3Store
from infra.store.s3_client import Bucket
def in_parts(bucket, path, name):
    bucket._files.put_file(str(path), bucket._path(name), chunksize=5 * 2**20)
Bucket.upload = in_parts
sealed(S3Store(Path(sys.argv[1]), Bucket(sys.argv[2]), 10**9), files={"large.bin": bytes(11 * 2**20)})
"""
"""Sends parts of the least size that S3 allows: with its own a file needs 100 MiB to have two."""


def test_a_killed_upload_leaves_no_artifact_and_the_copy_is_sent_again(
    s3: Server, store: S3Store, other: S3Store
) -> None:
    s3.inject_faults(status=503, code="SlowDown", times=999, match="partNumber=2")
    command = [sys.executable, "-c", SEAL, f"{store.root}", store.bucket.address]
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}) as process:
        wait_for(lambda: store.bucket.abort_uploads(time.time() + 3600, delete=False))
        process.kill()
    s3.inject_faults()
    assert other.find("clean", "k1") is None
    assert not list(other.list())
    assert store.restore("clean", "k1")
    assert other.damage(manifest_of(other)) == ""
    (left,) = other.leftovers(before=1e12)
    left.remove()
    assert not list(other.leftovers(before=1e12))


def test_what_stood_there_at_the_look_is_replaced(store: S3Store, other: S3Store) -> None:
    """Forced, made from a changed input, or refused under --strict: a manifest stands there, and the stage ran."""
    sealed(other, files={"a.txt": b"before"})
    store.find("clean", "k1")
    again = sealed(store, files={"a.txt": b"again"})
    assert manifest_of(other).content == again.content
    assert (other.artifact(manifest_of(other)).path() / "a.txt").read_bytes() == b"again"
    names = [name.rpartition("/")[2] for name in store.bucket.list("")]
    assert sorted(names) == ["a.txt", MANIFEST], "the files that it replaced are gone"


def test_of_two_that_replace_the_same_the_first_stays(store: S3Store, other: S3Store) -> None:
    sealed(other, files={"a.txt": b"before"})
    partials = [each.begin("clean", "k1", {}) for each in (store, other) if each.find("clean", "k1")]
    for partial, content in zip(partials, (b"first", b"second"), strict=True):
        (partial / "a.txt").write_bytes(content)
    first, second = (each.seal(p, DESCRIPTION) for each, p in zip((store, other), partials, strict=True))
    assert first.content == second.content
    assert (second.path() / "a.txt").read_bytes() == b"first"


def test_gc_leaves_what_replaced_the_artifact_that_it_looked_at(store: S3Store, other: S3Store) -> None:
    sealed(store, files={"a.txt": b"before"})
    other.find("clean", "k1")
    again = sealed(store, files={"a.txt": b"again"})
    other.remove("clean", "k1")
    assert manifest_of(store).content == again.content
    other.remove("clean", "k1")
    assert not store.bucket.list("clean")


def test_only_requests_that_every_store_knows_are_sent(
    store: S3Store, other: S3Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    call, conditions = Bucket._call, set[tuple[str, str]]()

    def watched(bucket: Bucket, name: str, request: str, **arguments: object) -> object:
        conditions.update((request, word) for word in arguments if word.startswith("If"))
        return call(bucket, name, request, **arguments)

    monkeypatch.setattr(Bucket, "_call", watched)
    sealed(store)
    sealed(store, files={"a.txt": b"new"})
    other.find("clean", "k1")
    other.quarantine("clean", "k1")
    sealed(other)
    other.remove("clean", "k1")
    assert conditions == {("put_object", "IfNoneMatch")}


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
def test_a_user_who_may_only_read_is_stopped_before_the_work(
    s3: Server, store: S3Store, other: S3Store, method: str
) -> None:
    sealed(store)
    s3.inject_faults(status=403, code="AccessDenied", times=99, match=method)
    assert other.find("clean", "k1")
    assert other.artifact(manifest_of(other)).path()
    with pytest.raises(BadConfiguration, match="REPRO_ROOT"):
        other.begin("clean", "k2", {})
    assert not (other.root / "clean" / "k2").exists()
    s3.inject_faults(status=403, code="AccessDenied", times=99, match="?uploads")
    left = list(other.leftovers(before=1e12))
    s3.inject_faults()
    assert [each.place.split("/")[0] for each in left] == ["probe"] * (method == "DELETE")
    for each in left:
        each.remove()
    assert {name.split("/")[0] for name in store.bucket.list("")} == {"clean"}


@pytest.mark.parametrize(("status", "code"), [(403, "QuotaExceeded"), (507, "XMinioStorageFull")])
def test_a_full_quota_is_no_space(s3: Server, store: S3Store, status: int, code: str) -> None:
    s3.inject_faults(status=status, code=code, times=99, match="PUT")
    with pytest.raises(NoSpace, match=code):
        store.begin("clean", "k1", {})
