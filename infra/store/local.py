"""Sealed, immutable folders on a disk: ``<root>/<stage>/<key>/``, each with its ``manifest.json``.

A stage writes into ``<stage>/<key>.partial-<id>``; sealing adds the manifest and renames the folder, so a folder under
its own name is complete. A folder without a manifest does not exist.
"""

import contextlib
import json
import os
import shutil
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from infra.errors import BadData
from infra.guards.address_secrets import public_facts
from infra.guards.path_names import is_artifact_name
from infra.processes.locks import is_locked, try_file_lock
from infra.store.files import (
    is_regular,
    names_by_stage,
    read_stamps,
    sha256_of,
    size_entry,
    stamp_of,
    sync,
    sync_tree,
    unlisted_names,
    write_atomically,
    write_durably,
    write_stamps,
)
from infra.store.manifest import (
    MANIFEST,
    Manifest,
    content_digest,
    digest_of,
    is_of_attempt,
    manifest_envelope,
    parse_manifest,
)


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
        """The local folder with the files, checked byte by byte the first time that this process asks for it.

        Raises BadData for an artifact that is damaged or missing, and NetworkFault where its store is remote.
        """
        return self.home.local_folder(self) if self.home else self.folder

    def is_replaced(self) -> bool:
        """Whether another process sealed other content meanwhile."""
        # A resumed stage may read nothing of an input; this machine's copy of it may then be an old one of a bucket's.
        place = self.store.local() if self.store.has_read(self) else self.store
        manifest = place.manifest(self.stage, self.key)
        return manifest is not None and manifest.content != self.content

    @property
    def store(self) -> "Store":
        return self.home or Store(self.folder.parents[1])


class Store:
    """The artifacts under one root folder. ``infra.store.s3`` uses such a folder as the cache of a remote store."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.say: Callable[[str], None] = lambda _: None
        """Receives messages about slow transfers and repairs."""
        self._checked: dict[tuple[str, str], str] = {}
        """Content digest of each artifact that this process has read in full."""
        self._checking = threading.Lock()

    def folder(self, stage: str, key: str) -> Path:
        return self.root / stage / key

    def address(self, stage: str, key: str) -> str:
        """Where the artifact is, for people."""
        return f"{self.folder(stage, key)}"

    def lock_file(self, stage: str, key: str) -> Path:
        return self.root / "locks" / f"{stage}-{key}.lock"

    def is_locked(self, stage: str, key: str) -> bool:
        """Whether a process of this machine holds the artifact's lock."""
        return is_locked(f"{self.root}/locks/{stage}-{key}.lock")  # faster than a Path

    def manifest(self, stage: str, key: str) -> Manifest | None:
        """The manifest, or None where there is no artifact; an unreadable or altered manifest counts as none."""
        if not is_artifact_name(f"{stage}/{key}"):  # a record, a tag or a manifest may name anything
            return None
        path = Path(f"{self.root}/{stage}/{key}/{MANIFEST}")  # faster than to join the parts
        try:
            parsed = parse_manifest(path.read_bytes(), stage, key) if is_regular(path) else None
        except OSError:
            return None
        return parsed[0] if parsed else None

    def has_folder(self, stage: str, key: str) -> bool:
        """Whether something is under the artifact's name, sealed or not."""
        return self.folder(stage, key).exists()

    def artifact(self, manifest: Manifest) -> Artifact:
        folder = self.folder(manifest.stage, manifest.key)
        return Artifact(manifest.stage, manifest.key, folder, manifest.content, public_facts(manifest.facts), self)

    def has_read(self, artifact: Artifact) -> bool:
        """Whether this process got the artifact's folder, or made it."""
        return self._checked.get((artifact.stage, artifact.key)) == artifact.content

    def local_folder(self, artifact: Artifact) -> Path:
        """Where the artifact's files are on this machine: those of its manifest with their sums, and no others."""
        stage, key = artifact.stage, artifact.key
        with self._checking:
            manifest = self.manifest(stage, key)
            if manifest is None or manifest.content != artifact.content:
                raise BadData(f"{artifact.folder} was removed or replaced meanwhile; run again")
            if self._checked.get((stage, key)) != artifact.content:
                if self._damage_by_bytes(manifest) or self.unlisted(manifest):
                    self._repair(artifact)
                self._checked[stage, key] = artifact.content
        return artifact.folder

    def _repair(self, artifact: Artifact) -> None:
        """Move an artifact away if it is damaged, else the files in it that are not listed. Raises BadData."""
        stage, key = artifact.stage, artifact.key
        with try_file_lock(self.lock_file(stage, key)) as free:
            # Without the lock, what looked like damage may be the work of a process that replaces the artifact.
            manifest = self.manifest(stage, key) if free else None
            if manifest is None or manifest.content != artifact.content:
                raise BadData(f"{artifact.folder} is being replaced or was removed meanwhile; run again")
            if damage := self._damage_by_bytes(manifest):
                moved = self.quarantine(stage, key)
                raise BadData(f"{stage} {key}: {damage}; moved to {moved}; repeat the run, which makes it again")
            self._move_unlisted(manifest)

    def unlisted(self, manifest: Manifest) -> list[str]:
        """Names of files and folders in the artifact that its manifest does not list."""
        return unlisted_names(self.folder(manifest.stage, manifest.key), {MANIFEST, *manifest.files})

    def _move_unlisted(self, manifest: Manifest) -> None:
        """Move what the manifest does not list out of the folder, so that no stage reads it. Raises BadData."""
        folder = self.folder(manifest.stage, manifest.key)
        aside = folder.with_name(f"{folder.name}.unlisted-{uuid.uuid4().hex[:8]}")
        for name in unlisted_names(folder, {MANIFEST, *manifest.files}):
            try:
                (aside / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).rename(aside / name)
            except FileNotFoundError:  # another process moved it
                continue
            except OSError as error:
                raise BadData(
                    f"{folder / name} is not listed in {MANIFEST} and cannot be moved ({error.strerror}): remove it"
                ) from error
            self.say(f"{folder / name} is not listed in {MANIFEST}: moved to {aside / name}")

    def local(self) -> "Store":
        """The store of artifacts that concern this machine alone."""
        return self

    def sealed(self) -> Iterator[Manifest]:
        """Every artifact, by stage and key, in one pass: each manifest is opened once."""
        for stage, key in self._folders():
            if manifest := self.manifest(stage, key):
                yield manifest

    def names(self) -> list[tuple[str, str]]:
        """Stage and key of everything that has a manifest, readable or not."""
        return [name for name in self._folders() if Path(f"{self.root}/{name[0]}/{name[1]}/{MANIFEST}").exists()]

    def keys_of(self, stage: str) -> list[str]:
        """Keys of everything of a stage that may be an artifact."""
        folder = self.root / stage
        return sorted(path.name for path in folder.iterdir() if "." not in path.name) if folder.is_dir() else []

    def _folders(self) -> Iterator[tuple[str, str]]:
        """Stage and key of everything that may be an artifact, by stage and key."""
        for stage, names in names_by_stage(self.root):
            for key in sorted([name for name in names if "." not in name]):
                yield stage, key

    def sizes(self) -> Iterator[tuple[str, str, int]]:
        """Stage, key and bytes on the disk of everything that has a manifest, which is not read, by stage and key."""
        index = self.root / "stamps" / "sizes.json"
        known, found = read_stamps(index), {}
        for stage, key in self._folders():
            name = f"{stage}/{key}"
            # The time of a folder changes with the names in it, and a sealed file never changes.
            if entry := size_entry(f"{self.root}/{name}", MANIFEST, known.get(name)):
                found[name] = entry
                yield stage, key, entry[1]
        if found != known:
            write_stamps(index, found)

    def input_names(self, stage: str, key: str) -> list[str]:
        """``stage/key`` of each input that a manifest names, also one with a wrong sum; empty if it is unreadable."""
        path = Path(f"{self.root}/{stage}/{key}/{MANIFEST}")
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
            if is_artifact_name(f"{stage}/{key}") and is_regular(path):
                return [*filter(is_artifact_name, json.loads(path.read_bytes())["manifest"]["inputs"])]
        return []

    def remove(self, stage: str, key: str) -> None:
        """Remove an artifact; other processes see all of it or none."""
        self.drop_stamps(stage, key)
        with contextlib.suppress(FileNotFoundError):
            self.discard(self._rename(stage, key, "removed"))

    def drop_stamps(self, stage: str, key: str) -> None:
        """Let the next ``damage`` hash every file of the artifact."""
        self.stamp_file(stage, key).unlink(missing_ok=True)

    def restore(self, stage: str, key: str, attempt: str = "") -> bool:
        """Bring back a missing artifact whose replacement was cut short; whether there was one.

        With an ``attempt``, only an artifact of that attempt is brought back.
        """
        folder = self.folder(stage, key)
        if folder.exists():
            return False
        replaced = sorted(folder.parent.glob(f"{key}.replaced-*"), key=lambda path: path.stat().st_mtime_ns)
        for path in reversed(replaced):
            parsed = parse_manifest(_read_text(path / MANIFEST), stage, key)
            if parsed and is_of_attempt(parsed[0], attempt):
                path.rename(folder)
                return True
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
        return self.damage_of(folder, manifest.files, self.stamp_file(manifest.stage, manifest.key))

    def _damage_by_bytes(self, manifest: Manifest) -> str:
        """The same, but every file is hashed, whatever its stamps."""
        folder, stamp_file = self.folder(manifest.stage, manifest.key), self.stamp_file(manifest.stage, manifest.key)
        return self.damage_of(folder, manifest.files, stamp_file, every_byte=True)

    def damage_of(
        self, folder: Path, files: Mapping[str, Mapping[str, Any]], stamp_file: Path, *, every_byte: bool = False
    ) -> str:
        """The same for any folder, with the sums of its files and where to keep their stamps."""
        stamps = {} if every_byte else read_stamps(stamp_file)
        fresh: dict[str, list[int]] = {}
        for name, expected in files.items():
            with contextlib.suppress(OSError):  # file_damage says what is wrong
                fresh[name] = stamp_of(folder / name)
            if (name not in fresh or stamps.get(name) != fresh[name]) and (
                damage := file_damage(folder, name, expected)
            ):
                return damage
        if fresh != stamps:
            write_stamps(stamp_file, fresh)
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
        stale_folders = [*folder.parent.glob(f"{key}.partial-*")]
        if self.folder(stage, key).exists():  # else ``restore`` may need the replaced one
            stale_folders += folder.parent.glob(f"{key}.replaced-*")
        for stale in stale_folders:
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
        folder, renamed = self.folder(stage, key), self.root / stage / f"{key}.{suffix}-{uuid.uuid4().hex[:8]}"
        os.utime(folder)  # as a leftover it is as old as its name
        folder.rename(renamed)
        return renamed

    def seal(self, partial: Path, description: Mapping[str, Any]) -> Artifact:
        """Hash a written folder, add its manifest and rename it. ``description``: the manifest's other fields."""
        files = {
            name: {"sha256": sha256_of(partial / name), "bytes": (partial / name).stat().st_size}
            for name in _file_names(partial)
        }
        for name in unlisted_names(partial, {MANIFEST, *files}):  # empty folders
            shutil.rmtree(partial / name)
        sync_tree(partial)
        attempt_file = self._attempt_file(description["stage"], description["key"])
        made = {**description["made"], **({"attempt": attempt} if (attempt := _read_text(attempt_file)) else {})}
        manifest = Manifest(files=files, content=content_digest(files), **{**description, "made": made})
        write_durably(partial / MANIFEST, json.dumps(manifest_envelope(manifest), indent=1, ensure_ascii=False))
        stamps = {name: stamp_of(partial / name) for name in files}
        folder = self.folder(manifest.stage, manifest.key)
        # A forced stage replaces an artifact, which stays complete until this moment.
        replaced = self._rename(manifest.stage, manifest.key, "replaced") if folder.exists() else None
        sync(partial)
        partial.rename(folder)
        for parent in (folder.parent, self.root):
            sync(parent)
        attempt_file.unlink(missing_ok=True)
        write_stamps(self.stamp_file(manifest.stage, manifest.key), stamps)
        self._checked[manifest.stage, manifest.key] = manifest.content
        if replaced:
            shutil.rmtree(replaced, ignore_errors=True)
        return self.artifact(manifest)

    def _attempt_file(self, stage: str, key: str) -> Path:
        """Names the attempt that began the partial folder of a key; absent where any may resume it."""
        return self.root / "attempts" / f"{stage}-{key}"

    def stamp_file(self, stage: str, key: str) -> Path:
        """Where the stamps of an artifact are kept: size, time and inode of each file when it was last hashed."""
        return self.root / "stamps" / f"{stage}-{key}.json"


def file_damage(folder: Path, name: str, expected: Mapping[str, Any]) -> str:
    """What is wrong with a file of an artifact, every byte read, or ""."""
    try:
        if not is_regular(folder / name):
            return f"{name} is not a regular file"
        if (size := (folder / name).stat().st_size) != expected["bytes"]:
            return f"{name} has {size} bytes, not {expected['bytes']}"
        return "" if sha256_of(folder / name) == expected["sha256"] else f"{name} was altered"
    except OSError as error:
        return f"{name} cannot be read ({error.strerror})"


def _file_names(folder: Path) -> Iterator[str]:
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != MANIFEST)
    return (path.relative_to(folder).as_posix() for path in paths)


def _read_text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
