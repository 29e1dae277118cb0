"""A store in a bucket, with a folder of this machine as its cache.

<stage>/<key>/manifest.json            lists the files and the id of their folder; written last
<stage>/<key>/<id>/…                   the files
<stage>/<key>/manifest.bad-<id>.json   the manifest of a damaged artifact
<stage>/<key>/resume-<inputs>/<writer>/…  checkpoints of unfinished work (``infra.store.checkpoint_sync``)
runs/…                                 small files that machines share
"""

import contextlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from infra.errors import BadData, NetworkFault
from infra.guards.path_names import path_below
from infra.processes.locks import file_lock
from infra.store.bucket_probe import check_write_access
from infra.store.cache import ArtifactCache
from infra.store.checkpoint_sync import Snapshot
from infra.store.files import stamp_of, write_atomically, write_stamps
from infra.store.leftovers import leftover_objects
from infra.store.local import LocalStore
from infra.store.manifest import MANIFEST, Manifest, bytes_of, is_of_attempt, manifest_envelope
from infra.store.s3_client import AccessRefused, Bucket, NoSuchKey, PreconditionFailed
from infra.store.s3_manifests import RemoteManifest, RemoteManifests
from infra.store.store import Artifact, Leftover, Store

LARGE_BYTES = 10**8
"""Transfers of this size or more are announced."""


class S3Store(Store):
    """The artifacts in ``bucket``. ``root`` holds copies of at most ``limit_bytes`` and the state of this machine.

    An artifact is sealed in the folder and then sent: its files below a new id, then the manifest, and only if no other
    machine has written one. If several machines make the same key, one wins and the others use its artifact. Nobody
    sees an interrupted transfer. ``find`` and ``damage`` together cost one listing.
    """

    def __init__(self, root: Path, bucket: Bucket, limit_bytes: int) -> None:
        super().__init__(root)
        self.bucket = bucket
        self._manifests = RemoteManifests(bucket, self.root)
        self._local = LocalStore(root)
        self._local.say = lambda text: self.say(text)
        """Copies, and artifacts that only this machine uses."""
        self._cache = ArtifactCache(self._local, limit_bytes, self._is_remote)
        self._replaces: dict[tuple[str, str], str] = {}
        """ETag of each artifact's manifest when its stage began: sealing replaces only this manifest."""
        self._is_writable = False
        self._snapshots: dict[Path, Snapshot] = {}

    def local(self) -> Store:
        return self._local

    def address(self, stage: str, key: str) -> str:
        return self.bucket.url(f"{stage}/{key}")

    def find(self, stage: str, key: str) -> Manifest | None:
        remote = self._manifests.get(stage, key)
        return remote.manifest if remote else None

    def has(self, stage: str, key: str) -> bool:
        return self._manifests.has(stage, key)

    def damage(self, manifest: Manifest) -> str:
        remote = self._manifests.get(manifest.stage, manifest.key, relist=False)
        return next(self._manifests.damages(remote, reread=False), "") if remote else "it is not there any more"

    def damages(self, manifest: Manifest) -> Sequence[str]:
        remote = self._manifests.get(manifest.stage, manifest.key)
        if remote is None:
            return []
        unlisted = self._manifests.unlisted(remote)
        found = [*self._manifests.damages(remote, reread=True)]
        if found:
            with contextlib.suppress(AccessRefused):  # who may only read the bucket can name the damage
                self.quarantine(manifest.stage, manifest.key)
        return [*found, *(f"{name} is not listed in its manifest" for name in unlisted)]

    def list(self, stage: str = "") -> Iterator[Manifest]:
        """Makes one listing, and one request for each manifest without a copy on this machine."""
        return (remote.manifest for _, remote in self._manifests.get_all(stage) if remote)

    def names(self) -> Iterator[tuple[str, str]]:
        return (name for name, _ in self._manifests.get_all())

    def remove(self, stage: str, key: str) -> None:
        if not self._manifests.remove(stage, key):
            return
        self.bucket.delete(f"{stage}/{key}/{name}" for name in self.bucket.list(f"{stage}/{key}"))
        if (self.folder(stage, key) / MANIFEST).exists():  # a folder without a manifest is no copy of the artifact
            self._local.remove(stage, key)

    def begin(self, stage: str, key: str, resume: Mapping[str, str], attempt: str = "") -> Path:
        if not self._is_writable:  # report this before the work of the first stage, not when its result is sent
            check_write_access(self.bucket)
            self._is_writable = True
        self._replaces[stage, key] = self._manifests.etag(stage, key)
        partial = self._local.begin(stage, key, resume, attempt)
        if resume:
            suffix = partial.name.rpartition(".partial-")[2]
            snapshot = Snapshot(self.bucket, f"{stage}/{key}/{suffix}", partial, self.say)
            self._snapshots.setdefault(partial, snapshot).begin(attempt)
        return partial

    def seal(self, partial: Path, description: Mapping[str, Any]) -> Artifact:
        stage = description["stage"]
        key = description["key"]
        self._cache.pin(stage, key)  # otherwise another process could evict what this one sends
        with self._copy_lock(stage, key):  # otherwise a reader could download the old artifact over it
            self._local.seal(partial, description)
            copy = self._local.find(stage, key)
            assert copy, "it was just sealed"
            published = self._publish(copy, self._replaces.pop((stage, key), ""))
        with contextlib.suppress(NetworkFault):  # the artifact is sent; ``repro gc`` removes a snapshot
            if snapshot := self._snapshots.pop(partial, None):
                snapshot.delete()
            self._cache.release()  # a finished stage no longer reads its inputs
        return self.artifact(published)

    def restore(self, stage: str, key: str, attempt: str = "") -> bool:
        """Send this machine's undamaged copy if the bucket lost the artifact or the copy's transfer failed."""
        with self._copy_lock(stage, key):
            copy = self._local.find(stage, key)
            if copy is None or not is_of_attempt(copy, attempt):
                return False
            published = self.find(stage, key)
            # A fetched copy has the time of its source. A newer copy was made here and could not be sent.
            is_old = published and published.made.get("at", "") >= copy.made.get("at", "")
            if is_old or self._local.damage(copy, every_byte=True):
                return False
            self.say(f"{stage} {key} is on this machine only: sent to {self.bucket.address}")
            self._publish(copy, self._manifests.etag(stage, key))
            return True

    def quarantine(self, stage: str, key: str) -> str:
        """Rename the manifest that was last read, so that the files are kept but are no artifact.

        Returns its new address. A manifest that replaced it meanwhile stays.
        """
        renamed = f"{stage}/{key}/manifest.bad-{uuid.uuid4().hex[:8]}.json"
        with contextlib.suppress(NoSuchKey):
            self.bucket.put(renamed, self.bucket.read(f"{stage}/{key}/{MANIFEST}"))
        self._manifests.remove(stage, key)
        return self.bucket.url(renamed)

    def path(self, artifact: Artifact) -> Path:
        """Download the artifact unless an undamaged copy is here. The cache keeps the copy until a stage ends."""
        stage = artifact.stage
        key = artifact.key
        self._cache.pin(stage, key)
        with self._copy_lock(stage, key):
            is_checked = self._local.checked.get((stage, key)) == artifact.content
            copy = self._local.find(stage, key)
            damage = self._local.damage(copy, every_byte=not is_checked) if copy else ""
            if copy and copy.content == artifact.content and not damage:
                if not is_checked:
                    self._local.move_unlisted(copy)
                    self._local.checked[stage, key] = artifact.content
                return artifact.folder
            if damage:
                self.say(f"{stage} {key}: {damage} in the copy on this machine; downloading it again")
            remote = self._manifests.get(stage, key)
            if remote is None or remote.manifest.content != artifact.content:
                raise BadData(f"{self.bucket.url(f'{stage}/{key}')} was removed or replaced meanwhile; run again")
            self._download(remote)
            self._local.checked[stage, key] = artifact.content
        return artifact.folder

    def path_as_it_is(self, manifest: Manifest) -> Path:
        return self.path(self.artifact(manifest))

    def is_replaced(self, artifact: Artifact) -> bool:
        """Check this machine's copy if this process has read it, so that a stage can end without the bucket.

        A resumed stage may not have read an input. The copy of that input may be old, so this checks the bucket.
        """
        has_read = self._local.checked.get((artifact.stage, artifact.key)) == artifact.content
        return self._local.is_replaced(artifact) if has_read else super().is_replaced(artifact)

    def leftovers(self, before: float) -> Iterator[Leftover]:
        yield from self._local.leftovers(before)
        # If this machine's clock were ahead, objects that others are uploading would look old.
        yield from leftover_objects(self.bucket, before + self.bucket.clock_offset())

    def share(self, path: Path) -> None:
        if snapshot := self._snapshots.get(path):
            snapshot.upload_in_background()
        elif path.is_file():
            self.bucket.put(path.absolute().relative_to(self.root).as_posix(), path.read_bytes())

    def fetch_newer(self, folder: str) -> None:
        for name, info in sorted(self.bucket.list(folder).items()):
            if "." not in name.rpartition("/")[2]:
                continue  # a file without a suffix could block the place of a run's folder
            path = path_below(self.root / folder, name)
            with contextlib.suppress(OSError):
                status = path.stat()
                # A record changes when its run ends. A record that this machine could not send is newer.
                if status.st_size == info.bytes or status.st_mtime > info.modified:
                    continue
            try:
                write_atomically(path, self.bucket.read(f"{folder}/{name}").decode())
                os.utime(path, (info.modified, info.modified))
            except (NoSuchKey, UnicodeDecodeError, FileExistsError, IsADirectoryError, NotADirectoryError):
                continue  # it was removed meanwhile, is not text, or a folder has its name

    def _copy_lock(self, stage: str, key: str) -> contextlib.AbstractContextManager[int]:
        """Return the lock of a process that downloads, seals or sends this machine's copy of an artifact."""
        waiting = lambda holder: self.say(f"{stage} {key}: waiting for {holder}")  # noqa: E731
        return file_lock(self.root / "locks" / f"fetch-{stage}-{key}", waiting)

    def _is_remote(self, manifest: Manifest) -> bool:
        remote = self.find(manifest.stage, manifest.key)
        return remote is not None and remote.content == manifest.content

    def _publish(self, manifest: Manifest, replaces: str) -> Manifest:
        """Send a sealed folder; return the manifest that the bucket then has, this one or another machine's.

        ``replaces``: ETag of the manifest to replace, "" for none.
        """
        stage = manifest.stage
        key = manifest.key
        if bytes_of(manifest) >= LARGE_BYTES:
            self.say(f"sending {bytes_of(manifest) / 1e6:,.0f} MB to {self.bucket.url(f'{stage}/{key}')}")
        sent = self._upload(manifest)
        replaced = self._manifests.get(stage, key, relist=False) if replaces else None
        name = f"{stage}/{key}/{MANIFEST}"
        text = json.dumps(sent.to_json(), indent=1, ensure_ascii=False).encode()
        # List once more: an artifact that another machine sealed since the lookup stays.
        if replaces and self._manifests.is_unchanged(stage, key, replaces):
            self.bucket.put(name, text)
        else:
            with contextlib.suppress(PreconditionFailed):
                self.bucket.put_if_absent(name, text)
        # Always read it: a request that was repeated after a lost answer fails because its first try succeeded.
        published = self._manifests.get(stage, key)
        if published is None:
            raise BadData(f"{self.bucket.url(f'{stage}/{key}')} was removed while it was sent; run again")
        if published.id == sent.id:
            if replaced and replaced.id != sent.id:
                self.bucket.delete(map(replaced.key_of, replaced.manifest.files))
            return manifest
        self.bucket.delete(map(sent.key_of, manifest.files))
        self.say(f"{stage} {key} was made elsewhere meanwhile; that one is used")
        if published.manifest.content != manifest.content:
            shutil.rmtree(self.folder(stage, key), ignore_errors=True)
        return published.manifest

    def _upload(self, manifest: Manifest) -> RemoteManifest:
        sent = RemoteManifest(manifest, uuid.uuid4().hex[:12], {})
        for name in manifest.files:
            self.bucket.upload(self.folder(manifest.stage, manifest.key) / name, sent.key_of(name))
        arrived = self.bucket.list(f"{manifest.stage}/{manifest.key}/{sent.id}")
        return RemoteManifest(manifest, sent.id, {name: info.etag for name, info in arrived.items()})

    def _download(self, remote: RemoteManifest) -> None:
        """Download an artifact into a partial folder and rename it when every checksum matches."""
        manifest = remote.manifest
        folder = self.folder(manifest.stage, manifest.key)
        self._cache.evict(bytes_of(manifest))
        if bytes_of(manifest) >= LARGE_BYTES:
            self.say(f"fetching {bytes_of(manifest) / 1e6:,.0f} MB from {self.bucket.address}/{manifest.stage}")
        partial = folder.with_name(f"{folder.name}.fetch-{uuid.uuid4().hex[:8]}")
        try:
            for name, expected in manifest.files.items():
                self._download_file(remote, name, expected["sha256"], partial / name)
            partial.mkdir(parents=True, exist_ok=True)
            (partial / MANIFEST).write_text(json.dumps(manifest_envelope(manifest), indent=1))
            stamps = {name: stamp_of(partial / name) for name in manifest.files}
            shutil.rmtree(folder, ignore_errors=True)
            partial.rename(folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        write_stamps(self._local.stamp_file(manifest.stage, manifest.key), stamps)

    def _download_file(self, remote: RemoteManifest, name: str, sha256: str, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        for _ in range(2):  # a transfer error is unlikely twice
            with contextlib.suppress(NoSuchKey):
                if self.bucket.download(remote.key_of(name), path) == sha256:
                    return
        stage = remote.manifest.stage
        key = remote.manifest.key
        current = self._manifests.get(stage, key)
        if current is None or current.id != remote.id:  # its files are gone; the new artifact is not damaged
            raise BadData(f"{self.bucket.url(f'{stage}/{key}')} was removed or replaced meanwhile; run again")
        damage = f"{self.bucket.url(remote.key_of(name))} does not match its checksum"
        try:
            renamed = self.quarantine(stage, key)
        except AccessRefused as error:
            raise BadData(f"{damage}; `repro verify` by a user who may write to the bucket repairs it") from error
        raise BadData(f"{damage}: its artifact was quarantined as {renamed}, and the next run makes it again")
