"""Bugs of machines that share a bucket, to show that the simulation finds them. Each is a context manager."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from infra.store import lease
from infra.store.checkpoint_sync import Snapshot
from infra.store.lease import Lease
from infra.store.s3 import S3Store
from infra.store.s3_client import Bucket
from infra.store.s3_manifests import RemoteManifest
from simulated import planted_bugs
from simulated.planted_bugs import Bug


def lease_taken_before_it_expires() -> AbstractContextManager[Any]:
    return patch.object(lease, "LEASE_SECONDS", 5.0)


def lease_removed_whoever_has_it() -> AbstractContextManager[Any]:
    return patch.object(Lease, "release", lambda lease: lease.bucket.delete([lease._name]))


def lease_of_the_dead_waited_for() -> AbstractContextManager[Any]:
    return patch.object(lease, "LEASE_SECONDS", 1e5)


@contextmanager
def index_sent_before_its_files() -> Iterator[None]:
    real_put, real_upload = Bucket.put_if_match, Snapshot._upload_file

    def upload(snapshot: Snapshot, name: str, stamp: list[int], known: set[str]) -> str:
        late = snapshot.bucket.__dict__.setdefault("late", [])
        with patch.object(Bucket, "put", lambda bucket, name, content: late.append((name, content))):
            return real_upload(snapshot, name, stamp, known)

    def put(bucket: Bucket, name: str, content: bytes, if_match: str = "") -> str:
        etag = real_put(bucket, name, content, if_match)
        for late in bucket.__dict__.pop("late", ()):
            bucket.put(*late)
        return etag

    with patch.object(Snapshot, "_upload_file", upload), patch.object(Bucket, "put_if_match", put):
        yield


def sum_of_a_download_not_compared() -> AbstractContextManager[Any]:
    def download(store: S3Store, remote: RemoteManifest, name: str, sha256: str, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        store.bucket.download(remote.key_of(name), path)

    return patch.object(S3Store, "_download_file", download)


IN_A_BUCKET: tuple[Bug, ...] = (
    *planted_bugs.IN_A_BUCKET,
    lease_taken_before_it_expires,
    lease_removed_whoever_has_it,
    lease_of_the_dead_waited_for,
    index_sent_before_its_files,
    sum_of_a_download_not_compared,
)
