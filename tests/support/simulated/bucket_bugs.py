"""Bugs of machines that share a bucket, to show that the simulation finds them. Each is a context manager."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from infra.store.checkpoint_sync import INDEX
from infra.store.manifest import MANIFEST
from infra.store.s3 import S3Store
from infra.store.s3_client import Bucket
from infra.store.s3_manifests import RemoteManifest, RemoteManifests
from simulated import planted_bugs
from simulated.planted_bugs import Bug


@contextmanager
def index_sent_before_its_files() -> Iterator[None]:
    real_put = Bucket.put

    def put(bucket: Bucket, name: str, content: bytes) -> None:
        late = bucket.__dict__.setdefault("late", [])
        if "/resume-" in name and not name.endswith(INDEX):
            late.append((name, content))
            return
        real_put(bucket, name, content)
        while late:
            real_put(bucket, *late.pop())

    with patch.object(Bucket, "put", put):
        yield


def damaged_manifest_removed_without_another_look() -> AbstractContextManager[Any]:
    def remove(manifests: RemoteManifests, stage: str, key: str) -> bool:
        manifests._bucket.delete([f"{stage}/{key}/{MANIFEST}"])
        manifests._listed[stage, key].pop(MANIFEST, None)
        return True

    return patch.object(RemoteManifests, "remove", remove)


def sum_of_a_download_not_compared() -> AbstractContextManager[Any]:
    def download(store: S3Store, remote: RemoteManifest, name: str, sha256: str, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        store.bucket.download(remote.key_of(name), path)

    return patch.object(S3Store, "_download_file", download)


IN_A_BUCKET: tuple[Bug, ...] = (
    *planted_bugs.IN_A_BUCKET,
    damaged_manifest_removed_without_another_look,
    index_sent_before_its_files,
    sum_of_a_download_not_compared,
)
