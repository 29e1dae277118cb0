"""Sealed, immutable folders on a disk: ``<root>/<stage>/<key>/``, each with its ``manifest.json``.

A stage writes into ``<stage>/<key>.partial-<id>``; sealing adds the manifest and renames the folder, so a folder under
its own name is complete. A folder without a manifest does not exist.
"""

import contextlib
import json
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from infra.store.files import sha256_of, stamp_of, sync_folder, write_atomically, write_durably
from infra.store.manifest import MANIFEST, Manifest, content_digest, digest_of, manifest_envelope, parse_manifest


@dataclass(frozen=True)
class Artifact:
    """A sealed folder: ``path()`` is where its files are, ``facts`` what its stage returned."""

    stage: str
    key: str
    folder: Path
    content: str = ""
    """Digest over the sorted paths and sums of its files, without logs; empty until it is made."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    home: "Store | None" = field(default=None, repr=False, compare=False)

    def path(self) -> Path:
        """The local folder with the files, downloaded from a remote store (raises BadData, NetworkFault)."""
        return self.home.local_folder(self) if self.home else self.folder

    @property
    def store(self) -> "Store":
        return self.home or Store(self.folder.parents[1])


class Store:
    """The artifacts under one root folder. ``infra.store.s3`` uses such a folder as the cache of a remote store."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.say: Callable[[str], None] = lambda _: None
        """Receives messages about slow transfers and repairs."""

    def folder(self, stage: str, key: str) -> Path:
        return self.root / stage / key

    def lock_file(self, stage: str, key: str) -> Path:
        return self.root / "locks" / f"{stage}-{key}.lock"

    def manifest(self, stage: str, key: str) -> Manifest | None:
        """The manifest, or None where there is no artifact; an unreadable or altered manifest counts as none."""
        try:
            return parse_manifest(json.loads((self.folder(stage, key) / MANIFEST).read_text()))
        except (OSError, ValueError):
            return None

    def artifact(self, manifest: Manifest) -> Artifact:
        folder = self.folder(manifest.stage, manifest.key)
        return Artifact(manifest.stage, manifest.key, folder, manifest.content, manifest.facts)

    def local_folder(self, artifact: Artifact) -> Path:
        """Where the artifact's files are on this machine."""
        return artifact.folder

    def local(self) -> "Store":
        """The store of artifacts that concern this machine alone."""
        return self

    def sealed(self) -> Iterator[Manifest]:
        """Every artifact, by stage and key."""
        for stage, key in self.names():
            if manifest := self.manifest(stage, key):
                yield manifest

    def names(self) -> list[tuple[str, str]]:
        """Stage and key of everything that has a manifest, readable or not."""
        found = (path.parent for path in self.root.glob(f"*/*/{MANIFEST}"))
        return sorted((folder.parent.name, folder.name) for folder in found if "." not in folder.name)

    def remove(self, stage: str, key: str) -> None:
        """Remove an artifact; other processes see all of it or none."""
        self.drop_stamps(stage, key)
        with contextlib.suppress(FileNotFoundError):
            self.discard(self._rename(stage, key, "removed"))

    def drop_stamps(self, stage: str, key: str) -> None:
        """Let the next ``damage`` hash every file of the artifact."""
        self._stamp_file(stage, key).unlink(missing_ok=True)

    def restore(self, stage: str, key: str) -> bool:  # noqa: ARG002
        """Publish a missing artifact from this machine's copy; whether there was one."""
        return False

    def release(self) -> None:
        """Allow the cache to evict artifacts that were read until now."""

    def send(self, path: Path) -> None:
        """Copy a small file below the root to all machines that share the store."""

    def receive(self, folder: str, newest: int = 0) -> None:
        """Fetch the small files that others sent: the ``newest`` ones, or all for 0."""

    def damage(self, manifest: Manifest) -> str:
        """The first damage to the artifact's files, or "".

        A file whose size, time and inode are as when it was last hashed counts as unchanged.
        """
        folder = self.folder(manifest.stage, manifest.key)
        stamps = self._stamps(manifest.stage, manifest.key)
        fresh: dict[str, list[int]] = {}
        for name, expected in manifest.files.items():
            with contextlib.suppress(OSError):  # file_damage says what is wrong
                fresh[name] = stamp_of(folder / name)
            if (name not in fresh or stamps.get(name) != fresh[name]) and (
                damage := file_damage(folder, name, expected)
            ):
                return damage
        if fresh != stamps:
            self._write_stamps(manifest.stage, manifest.key, fresh)
        return ""

    def partial(self, stage: str, key: str, resume: Mapping[str, str], attempt: str = "") -> Path:
        """A folder to write into. The caller holds the key's lock, so other partial folders of the key are stale.

        With ``resume``, the content digests of the inputs, an interrupted folder over the same content is reused; with
        ``attempt`` only if that attempt began it. The manifest will name the attempt that began the folder.
        """
        suffix = f"resume-{digest_of(resume)[:8]}" if resume else uuid.uuid4().hex[:8]
        folder = self.root / stage / f"{key}.partial-{suffix}"
        attempt_file = self._attempt_file(stage, key)
        is_new = not folder.exists() or (attempt and attempt != _read_text(attempt_file))
        for stale in (*folder.parent.glob(f"{key}.partial-*"), *folder.parent.glob(f"{key}.replaced-*")):
            if is_new or stale != folder:
                shutil.rmtree(stale, ignore_errors=True)
        # Outside the folder, since all that the folder holds becomes the artifact.
        if is_new and attempt:
            write_atomically(attempt_file, attempt)
        elif is_new:
            attempt_file.unlink(missing_ok=True)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def sync_checkpoint(self, partial: Path) -> None:
        """Send what a resumable folder holds by now, so that it survives this machine; returns at once."""

    def discard(self, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)

    def quarantine(self, stage: str, key: str) -> str:
        """Rename a damaged artifact, so that its bytes are kept but it no longer exists; gives the new name."""
        return self._rename(stage, key, "bad").name

    def _rename(self, stage: str, key: str, suffix: str) -> Path:
        renamed = self.root / stage / f"{key}.{suffix}-{uuid.uuid4().hex[:8]}"
        self.folder(stage, key).rename(renamed)
        return renamed

    def seal(self, partial: Path, description: Mapping[str, Any]) -> Artifact:
        """Hash a written folder, add its manifest and rename it. ``description``: the manifest's other fields."""
        files = {
            name: {"sha256": sha256_of(partial / name), "bytes": (partial / name).stat().st_size}
            for name in _file_names(partial)
        }
        attempt_file = self._attempt_file(description["stage"], description["key"])
        made = {**description["made"], **({"attempt": attempt} if (attempt := _read_text(attempt_file)) else {})}
        manifest = Manifest(files=files, content=content_digest(files), **{**description, "made": made})
        write_durably(partial / MANIFEST, json.dumps(manifest_envelope(manifest), indent=1, ensure_ascii=False))
        stamps = {name: stamp_of(partial / name) for name in files}
        folder = self.folder(manifest.stage, manifest.key)
        # A forced stage replaces an artifact, which stays complete until this moment.
        replaced = self._rename(manifest.stage, manifest.key, "replaced") if folder.exists() else None
        partial.rename(folder)
        sync_folder(folder.parent)
        attempt_file.unlink(missing_ok=True)
        self._write_stamps(manifest.stage, manifest.key, stamps)
        if replaced:
            shutil.rmtree(replaced, ignore_errors=True)
        return self.artifact(manifest)

    def _attempt_file(self, stage: str, key: str) -> Path:
        """Names the attempt that began the partial folder of a key; absent where any may resume it."""
        return self.root / "attempts" / f"{stage}-{key}"

    def _stamp_file(self, stage: str, key: str) -> Path:
        return self.root / "stamps" / f"{stage}-{key}.json"

    def _stamps(self, stage: str, key: str) -> dict[str, list[int]]:
        try:
            stamps = json.loads(self._stamp_file(stage, key).read_text())
        except (OSError, ValueError):
            return {}
        return stamps if isinstance(stamps, dict) else {}

    def _write_stamps(self, stage: str, key: str, stamps: Mapping[str, list[int]]) -> None:
        with contextlib.suppress(OSError):  # without stamps the next run only hashes again
            write_atomically(self._stamp_file(stage, key), json.dumps(stamps))


def file_damage(folder: Path, name: str, expected: Mapping[str, Any]) -> str:
    """What is wrong with a file of an artifact, every byte read, or ""."""
    try:
        if (size := (folder / name).stat().st_size) != expected["bytes"]:
            return f"{name} has {size} bytes, not {expected['bytes']}"
        return "" if sha256_of(folder / name) == expected["sha256"] else f"{name} was altered"
    except OSError as error:
        return f"{name} cannot be read ({error.strerror})"


def _file_names(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != MANIFEST:
            yield path.relative_to(folder).as_posix()


def _read_text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
