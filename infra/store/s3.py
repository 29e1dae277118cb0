"""A store in a bucket, with a folder of this machine as its cache.

    <stage>/<key>/manifest.json            what it holds, and under which id; written last
    <stage>/<key>/<id>/…                   its files
    <stage>/<key>/manifest.bad-<id>.json   set aside because bytes were wrong
    <stage>/<key>/resume-<inputs>/…        what unfinished work had come to (``infra.store.checkpoint_sync``)
    runs/…                                 small files that were sent

An artifact is made and sealed in the folder, as without a bucket, then sent: its files first, below an id that nobody
knows yet, the manifest last and only where none has come meanwhile. So of several machines that made the same one wins,
and the others take its. What was killed half way is never seen. ``manifest`` and ``damage`` ask for one listing.
"""

import contextlib
import hashlib
import json
import shutil
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.errors import BadData, NetworkFault
from infra.processes.locks import file_lock
from infra.store.cache import ArtifactCache, bytes_of
from infra.store.checkpoint_sync import Snapshot
from infra.store.local import (
    MANIFEST,
    Artifact,
    Manifest,
    Store,
    manifest_envelope,
    parse_manifest,
    stamp_of,
    write_atomically,
)
from infra.store.s3_client import Bucket, NoSuchKey, ObjectInfo, PreconditionFailed

LARGE_BYTES = 10**8
"""A transfer of so many bytes is said beforehand."""


@dataclass(frozen=True)
class RemoteManifest:
    """A manifest in the bucket: below which id its files lie, and which ETags they had when they were sent."""

    manifest: Manifest
    id: str
    etags: Mapping[str, str]


class S3Store(Store):
    """The artifacts in ``bucket``; ``root`` holds copies, at most ``limit_bytes``, and what is this machine's."""

    def __init__(self, root: Path, bucket: Bucket, limit_bytes: int) -> None:
        super().__init__(root)
        self.bucket = bucket
        self._cache = ArtifactCache(self.local(), limit_bytes, self._is_remote)
        self._listed: dict[tuple[str, str], dict[str, ObjectInfo]] = {}
        self._before: dict[tuple[str, str], str] = {}
        """ETag of the manifest that was there when an artifact was begun; what is sent may replace only that."""
        self._snapshots: dict[Path, Snapshot] = {}

    def local(self) -> Store:
        """The folder alone: the copies, and artifacts that are of use on this machine only."""
        return Store(self.root)

    def manifest(self, stage: str, key: str) -> Manifest | None:
        published = self._published(stage, key)
        return published.manifest if published else None

    def artifact(self, manifest: Manifest) -> Artifact:
        folder = self.folder(manifest.stage, manifest.key)
        return Artifact(manifest.stage, manifest.key, folder, manifest.content, manifest.facts, self)

    def damage(self, manifest: Manifest) -> str:
        """As of a folder, by the listing: an object of the size and the ETag it was sent with is taken as unchanged."""
        published = self._published(manifest.stage, manifest.key, again=False)
        if published is None:
            return "it is not there any more"
        return next(self._wrong(published, every=False), "")

    def rehash(self, manifest: Manifest) -> Iterator[str]:
        """What is wrong with each file, every byte read anew."""
        if published := self._published(manifest.stage, manifest.key):
            yield from self._wrong(published, every=True)

    def names(self) -> list[tuple[str, str]]:
        parts = (name.split("/") for name in self.bucket.list(""))
        return sorted((stage, key) for stage, key, *rest in parts if rest == [MANIFEST])

    def remove(self, stage: str, key: str) -> None:
        self.bucket.delete([f"{stage}/{key}/{MANIFEST}"])
        self.bucket.delete(f"{stage}/{key}/{name}" for name in self.bucket.list(f"{stage}/{key}"))
        self._manifest_cache_file(stage, key).unlink(missing_ok=True)
        super().remove(stage, key)

    def partial(self, stage: str, key: str, resume: Mapping[str, str], attempt: str = "") -> Path:
        there = self.bucket.list(f"{stage}/{key}").get(MANIFEST)
        self._before[stage, key] = there.etag if there else ""
        partial = super().partial(stage, key, resume, attempt)
        if resume:
            mark = partial.name.rpartition(".partial-")[2]
            note = self.root / "published" / f"{stage}-{key}.{mark}.json"
            unbegun = Snapshot(self.bucket, f"{stage}/{key}/{mark}", partial, note, self.say)
            self._snapshots.setdefault(partial, unbegun).begin(attempt)
        return partial

    def sync_checkpoint(self, partial: Path) -> None:
        if snapshot := self._snapshots.get(partial):
            snapshot.upload_in_background()

    def seal(self, partial: Path, description: Mapping[str, Any]) -> Artifact:
        made = super().seal(partial, description)
        manifest = self.local().manifest(made.stage, made.key)
        assert manifest, "it was just sealed"
        stands = self._publish(manifest, self._before.pop((made.stage, made.key), ""))
        if snapshot := self._snapshots.pop(partial, None):
            with contextlib.suppress(NetworkFault):  # left to ``repro gc``
                snapshot.delete()
        return self.artifact(stands)

    def restore(self, stage: str, key: str) -> bool:
        """Send the copy on this machine, if it is whole, where the bucket has none: it was lost, or never arrived."""
        copy = self.local().manifest(stage, key)
        there = self.bucket.list(f"{stage}/{key}")
        if copy is None or MANIFEST in there or self.local().damage(copy):
            return False
        self.say(f"{stage} {key} is on this machine only: sent to {self.bucket.address}")
        self._publish(copy, "")
        return True

    def quarantine(self, stage: str, key: str) -> str:
        """Take the manifest away under another name, so that its files are kept but are no artifact any more."""
        aside = f"manifest.bad-{uuid.uuid4().hex[:8]}.json"
        with contextlib.suppress(NoSuchKey):
            self.bucket.put(f"{stage}/{key}/{aside}", self.bucket.read(f"{stage}/{key}/{MANIFEST}"))
        self.bucket.delete([f"{stage}/{key}/{MANIFEST}"])
        return self.bucket.url(f"{stage}/{key}/{aside}")

    def local_folder(self, artifact: Artifact) -> Path:
        """The artifact's files on this machine, fetched where they are not there or not whole.

        Raises BadData for one that arrives with other bytes than its sum says; it is set aside then.
        """
        stage, key = artifact.stage, artifact.key
        self._cache.pin(stage, key)
        with file_lock(self.root / "locks" / f"fetch-{stage}-{key}", lambda holder: self.say(f"waiting for {holder}")):
            copy = self.local().manifest(stage, key)
            wrong = self.local().damage(copy) if copy else ""
            if copy and copy.content == artifact.content and not wrong:
                return artifact.folder
            if wrong:
                self.say(f"{stage} {key}: {wrong} in the copy on this machine; fetched anew")
            published = self._published(stage, key)
            if published is None or published.manifest.content != artifact.content:
                raise BadData(f"{self.bucket.url(f'{stage}/{key}')} was removed or replaced meanwhile; run again")
            self._fetch(published)
        return artifact.folder

    def release(self) -> None:
        self._cache.release()

    def send(self, path: Path) -> None:
        self.bucket.put(path.absolute().relative_to(self.root).as_posix(), path.read_bytes())

    def receive(self, folder: str, newest: int = 0) -> None:
        for name in sorted(self.bucket.list(folder))[-newest:]:
            path = self.root / folder / name
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                with contextlib.suppress(NoSuchKey):
                    write_atomically(path, self.bucket.read(f"{folder}/{name}").decode())

    def _is_remote(self, manifest: Manifest) -> bool:
        there = self.manifest(manifest.stage, manifest.key)
        return there is not None and there.content == manifest.content

    def _published(self, stage: str, key: str, *, again: bool = True) -> RemoteManifest | None:
        """What the bucket has, by a listing made ``again``; an unreadable or altered manifest counts as none."""
        if again or (stage, key) not in self._listed:
            self._listed[stage, key] = self.bucket.list(f"{stage}/{key}")
        there = self._listed[stage, key].get(MANIFEST)
        if there is None:
            return None
        seen = self._manifest_cache_file(stage, key)
        try:
            kept = json.loads(seen.read_text())
            told = kept["told"] if kept["etag"] == there.etag else None
        except (OSError, ValueError, TypeError, KeyError):
            told = None
        if told is None:
            try:
                told = json.loads(self.bucket.read(f"{stage}/{key}/{MANIFEST}"))
            except (NoSuchKey, ValueError):
                return None
            seen.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(seen, json.dumps({"etag": there.etag, "told": told}))
        manifest = parse_manifest(told)
        return RemoteManifest(manifest, told["id"], told["etags"]) if manifest else None

    def _manifest_cache_file(self, stage: str, key: str) -> Path:
        return self.root / "published" / f"{stage}-{key}.json"

    def _wrong(self, published: RemoteManifest, *, every: bool) -> Iterator[str]:
        manifest = published.manifest
        listed = self._listed[manifest.stage, manifest.key]
        for name, expected in manifest.files.items():
            there = listed.get(f"{published.id}/{name}")
            if there is None:
                yield f"{name} is not in the store"
            elif there.bytes != expected["bytes"]:
                yield f"{name} has {there.bytes} bytes, not {expected['bytes']}"
            elif every or there.etag != published.etags.get(name):
                if self._sum(published, name) != expected["sha256"]:
                    yield f"{name} was altered"
                else:  # a bucket that was copied has other ETags
                    self._remember(published, {**published.etags, name: there.etag})

    def _remember(self, published: RemoteManifest, etags: Mapping[str, str]) -> None:
        manifest = published.manifest
        etag = self._listed[manifest.stage, manifest.key][MANIFEST].etag
        told = {**manifest_envelope(manifest), "id": published.id, "etags": etags}
        write_atomically(
            self._manifest_cache_file(manifest.stage, manifest.key), json.dumps({"etag": etag, "told": told})
        )

    def _sum(self, published: RemoteManifest, name: str) -> str:
        digest = hashlib.sha256()
        with contextlib.suppress(NoSuchKey):
            for block in self.bucket.blocks(self._object(published, name)):
                digest.update(block)
        return digest.hexdigest()

    def _object(self, published: RemoteManifest, name: str) -> str:
        return f"{published.manifest.stage}/{published.manifest.key}/{published.id}/{name}"

    def _publish(self, manifest: Manifest, if_match: str) -> Manifest:
        """Send what lies sealed in the folder; gives the manifest that stands in the end, this one or another's."""
        stage, key, mine = manifest.stage, manifest.key, uuid.uuid4().hex[:12]
        if bytes_of(manifest) >= LARGE_BYTES:
            self.say(f"sending {bytes_of(manifest) / 1e6:,.0f} MB to {self.bucket.url(f'{stage}/{key}')}")
        folder = self.folder(stage, key)
        for name, file in manifest.files.items():
            self.bucket.upload(folder / name, f"{stage}/{key}/{mine}/{name}", {"sha256": file["sha256"]})
        arrived = self.bucket.list(f"{stage}/{key}/{mine}")
        told = {
            **manifest_envelope(manifest),
            "id": mine,
            "etags": {name: there.etag for name, there in arrived.items()},
        }
        text = json.dumps(told, indent=1, ensure_ascii=False).encode()
        replaced = self._published(stage, key) if if_match else None
        with contextlib.suppress(
            PreconditionFailed, NoSuchKey
        ):  # NoSuchKey: what was to be replaced is not there any more
            self.bucket.put_if_match(f"{stage}/{key}/{MANIFEST}", text, if_match)
        # Looked at in any case: a write that was repeated for want of an answer is told Taken of its own first try.
        published = self._published(stage, key)
        if published is None:
            raise BadData(f"{self.bucket.url(f'{stage}/{key}')} was removed while it was sent; run again")
        if published.id == mine:
            if replaced and replaced.id != mine:
                self.bucket.delete(self._object(replaced, name) for name in replaced.manifest.files)
            return manifest
        self.say(f"{stage} {key} was made elsewhere meanwhile; that one is taken")
        self.bucket.delete(f"{stage}/{key}/{mine}/{name}" for name in manifest.files)
        if published.manifest.content != manifest.content:
            self.discard(folder)
        return published.manifest

    def _fetch(self, published: RemoteManifest) -> None:
        """Into a folder beside its place, renamed when every sum is right."""
        manifest, place = published.manifest, self.folder(published.manifest.stage, published.manifest.key)
        self._cache.evict(bytes_of(manifest))
        if bytes_of(manifest) >= LARGE_BYTES:
            self.say(f"fetching {bytes_of(manifest) / 1e6:,.0f} MB from {self.bucket.address}/{manifest.stage}")
        partial = place.with_name(f"{place.name}.fetch-{uuid.uuid4().hex[:8]}")
        try:
            for name, expected in manifest.files.items():
                path = partial / name
                path.parent.mkdir(parents=True, exist_ok=True)
                # What a line garbled comes right the second time.
                if all(self._load(published, name, path) != expected["sha256"] for _ in range(2)):
                    aside = self.quarantine(manifest.stage, manifest.key)
                    told = f"{self.bucket.url(self._object(published, name))} is not what its sum says"
                    raise BadData(f"{told}: its artifact was set aside as {aside}, and the next run makes it again")
            partial.mkdir(parents=True, exist_ok=True)
            (partial / MANIFEST).write_text(json.dumps(manifest_envelope(manifest), indent=1, ensure_ascii=False))
            stamps = {name: stamp_of(partial / name) for name in manifest.files}
            self.discard(place)
            partial.rename(place)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        self._write_stamps(manifest.stage, manifest.key, stamps)

    def _load(self, published: RemoteManifest, name: str, path: Path) -> str:
        try:
            return self.bucket.download(self._object(published, name), path)
        except NoSuchKey:
            return ""
