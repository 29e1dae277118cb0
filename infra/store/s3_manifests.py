"""Manifests in a bucket: which artifacts exist, and whether their objects are undamaged.

Each lookup costs one listing. A manifest is downloaded once and then kept by its ETag in ``published/``.
"""

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from infra.guards.path_names import is_artifact_name, is_plain_name
from infra.processes.threads import run_in_threads
from infra.store.files import write_atomically
from infra.store.manifest import MANIFEST, Manifest, manifest_envelope, parse_manifest
from infra.store.s3_client import REQUESTS_AT_ONCE, Bucket, NoSuchKey, ObjectInfo

MANIFESTS_IN_MEMORY = 1000


@dataclass(frozen=True)
class RemoteManifest:
    """A manifest in the bucket, the id of its files' folder, and the ETags of its files when they were sent."""

    manifest: Manifest
    id: str
    etags: Mapping[str, str]

    def key_of(self, name: str) -> str:
        """Return the name of a file's object in the bucket."""
        return f"{self.manifest.stage}/{self.manifest.key}/{self.id}/{name}"

    def to_json(self) -> dict[str, object]:
        return {**manifest_envelope(self.manifest), "id": self.id, "etags": self.etags}


class RemoteManifests:
    """The manifests in ``bucket``, kept by ETag below ``root``."""

    def __init__(self, bucket: Bucket, root: Path) -> None:
        self._bucket = bucket
        self._folder = root / "published"
        self._listed: dict[tuple[str, str], dict[str, ObjectInfo]] = {}

    def get(self, stage: str, key: str, *, relist: bool = True) -> RemoteManifest | None:
        """Return the manifest by a new listing (``relist``) or the last one; None if absent, unreadable or altered."""
        if relist:
            self._list(stage, key)
        etag = self.etag(stage, key)
        if not etag:
            return None
        kept = self._read_copy(stage, key, etag)
        try:
            parsed = parse_manifest(kept or self._bucket.read(f"{stage}/{key}/{MANIFEST}"), stage, key)
        except NoSuchKey:
            return None
        if parsed is None or not is_plain_name(parsed[1].get("id")):
            return None
        manifest, envelope = parsed
        etags = envelope.get("etags")
        remote = RemoteManifest(manifest, envelope["id"], etags if isinstance(etags, dict) else {})
        if not kept:
            self._write_copy(stage, key, etag, remote)
        return remote

    def get_all(self, stage: str = "") -> Iterator[tuple[tuple[str, str], RemoteManifest | None]]:
        """Yield stage, key and manifest of each artifact, sorted, from one listing; downloads run in parallel.

        ``stage`` limits the listing to one. An unreadable or altered manifest is None.
        """
        listed: dict[tuple[str, str], dict[str, ObjectInfo]] = {}
        for name, info in self._bucket.list(stage).items():
            whole = f"{stage}/{name}" if stage else name
            of_stage, _, rest = whole.partition("/")
            key, _, file = rest.partition("/")
            listed.setdefault((of_stage, key), {})[file] = info
        names = sorted(name for name in listed if MANIFEST in listed[name] and is_artifact_name("/".join(name)))
        self._listed.update((name, listed[name]) for name in names)
        for first in range(0, len(names), MANIFESTS_IN_MEMORY):
            some = names[first : first + MANIFESTS_IN_MEMORY]
            calls = [partial(self.get, stage, key, relist=False) for stage, key in some]
            yield from zip(some, run_in_threads(calls, REQUESTS_AT_ONCE, "manifest"), strict=True)

    def has(self, stage: str, key: str) -> bool:
        """Whether the bucket has a manifest for the artifact, readable or not."""
        if (stage, key) not in self._listed:
            self._list(stage, key)
        return MANIFEST in self._listed[stage, key]

    def _list(self, stage: str, key: str) -> None:
        self._listed[stage, key] = self._bucket.list(f"{stage}/{key}")

    def etag(self, stage: str, key: str) -> str:
        """Return the manifest's ETag in the last listing; "" if there was none."""
        return self._listed[stage, key][MANIFEST].etag if self.has(stage, key) else ""

    def is_unchanged(self, stage: str, key: str, etag: str) -> bool:
        """Whether the bucket has the manifest with this ETag, by a new listing."""
        self._list(stage, key)
        return self.etag(stage, key) == etag

    def remove(self, stage: str, key: str) -> bool:
        """List once more and delete the manifest, unless another one replaced it since the last listing.

        Returns whether no manifest is left. Not every S3 store supports conditional deletion. A manifest written
        between the listing and the deletion is therefore lost, and its artifact is made again.
        """
        if not self.is_unchanged(stage, key, self.etag(stage, key)):
            return not self.has(stage, key)
        self._bucket.delete([f"{stage}/{key}/{MANIFEST}"])
        self._copy(stage, key).unlink(missing_ok=True)
        self._listed[stage, key].pop(MANIFEST, None)
        return True

    def damages(self, remote: RemoteManifest, *, reread: bool) -> Iterator[str]:
        """Yield the damage of each object by the last listing; ``reread`` downloads all objects.

        An object that still has the size and ETag of its upload counts as unchanged.
        """
        manifest = remote.manifest
        listed = self._listed[manifest.stage, manifest.key]
        for name, expected in manifest.files.items():
            found = listed.get(f"{remote.id}/{name}")
            if found is None:
                yield f"{name} is not in the store"
            elif found.bytes != expected["bytes"]:
                yield f"{name} has {found.bytes} bytes, not {expected['bytes']}"
            elif reread or found.etag != remote.etags.get(name):
                if self._sha256(remote.key_of(name)) != expected["sha256"]:
                    yield f"{name} was altered"
                else:  # the objects of a copied bucket have other ETags
                    remote = replace(remote, etags={**remote.etags, name: found.etag})
                    self._write_copy(manifest.stage, manifest.key, listed[MANIFEST].etag, remote)

    def unlisted(self, remote: RemoteManifest) -> list[str]:
        """Return the objects of the last listing beside the artifact's files that its manifest does not list."""
        prefix = f"{remote.id}/"
        listed = self._listed[remote.manifest.stage, remote.manifest.key]
        names = (name.removeprefix(prefix) for name in listed if name.startswith(prefix))
        return sorted(name for name in names if name not in remote.manifest.files)

    def _sha256(self, name: str) -> str:
        digest = hashlib.sha256()
        with contextlib.suppress(NoSuchKey):
            for block in self._bucket.blocks(name):
                digest.update(block)
        return digest.hexdigest()

    def _copy(self, stage: str, key: str) -> Path:
        return self._folder / f"{stage}-{key}.json"

    def _read_copy(self, stage: str, key: str, etag: str) -> str:
        try:
            copy = json.loads(self._copy(stage, key).read_text())
            return json.dumps(copy["document"]) if copy["etag"] == etag else ""
        except (OSError, ValueError, TypeError, KeyError):
            return ""

    def _write_copy(self, stage: str, key: str, etag: str, remote: RemoteManifest) -> None:
        with contextlib.suppress(OSError):  # without a copy the next lookup downloads it again
            write_atomically(self._copy(stage, key), json.dumps({"etag": etag, "document": remote.to_json()}))
