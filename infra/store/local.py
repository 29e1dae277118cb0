"""A store in a folder: each artifact is ``<root>/<stage>/<key>/`` with its ``manifest.json``.

A stage writes into ``<stage>/<key>.partial-<id>``. Sealing adds the manifest and renames the folder to ``<key>``, so a
folder of that name is complete. A folder without a manifest counts as absent.
"""

import contextlib
import json
import os
import shutil
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from infra.errors import BadData
from infra.guards.path_names import is_artifact_name
from infra.processes.locks import try_file_lock
from infra.store.files import (
    file_damage,
    folder_damage,
    is_regular,
    names_by_stage,
    raise_unless_damage,
    sha256_of,
    stamp_of,
    sync,
    sync_tree,
    unlisted_names,
    write_atomically,
    write_durably,
    write_stamps,
)
from infra.store.leftovers import leftover_folders
from infra.store.manifest import (
    MANIFEST,
    Manifest,
    content_digest,
    digest_of,
    is_of_attempt,
    manifest_envelope,
    parse_manifest,
)
from infra.store.store import Artifact, Leftover, Store


class LocalStore(Store):
    """The artifacts under one root folder."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.checked: dict[tuple[str, str], str] = {}
        """Content digest of each artifact that this process made or read in full."""
        self._checking = threading.Lock()

    def address(self, stage: str, key: str) -> str:
        return f"{self.folder(stage, key)}"

    def local(self) -> Store:
        return self

    def find(self, stage: str, key: str) -> Manifest | None:
        if not is_artifact_name(f"{stage}/{key}"):  # a record, a tag or a manifest may contain any name
            return None
        path = Path(f"{self.root}/{stage}/{key}/{MANIFEST}")  # faster than joining Paths
        try:
            parsed = parse_manifest(path.read_bytes(), stage, key) if is_regular(path) else None
        except OSError as error:
            raise_unless_damage(error, path)
            return None
        return parsed[0] if parsed else None

    def has(self, stage: str, key: str) -> bool:
        return self.folder(stage, key).exists()

    def list(self, stage: str = "") -> Iterator[Manifest]:
        for each, key in self._folders(stage):
            if manifest := self.find(each, key):
                yield manifest

    def _folders(self, stage: str = "") -> Iterator[tuple[str, str]]:
        """Yield stage and key of each folder that may be an artifact, sorted."""
        for each, names in names_by_stage(self.root, stage):
            for key in sorted([name for name in names if "." not in name]):
                yield each, key

    def names(self) -> Iterator[tuple[str, str]]:
        return (name for name in self._folders() if (self.folder(*name) / MANIFEST).exists())

    def path(self, artifact: Artifact) -> Path:
        stage = artifact.stage
        key = artifact.key
        with self._checking:
            manifest = self.find(stage, key)
            if manifest is None or manifest.content != artifact.content:
                raise BadData(f"{artifact.folder} was removed or replaced meanwhile; run again")
            if self.checked.get((stage, key)) != artifact.content:
                if self.damage(manifest, every_byte=True) or self._unlisted(manifest):
                    self._repair(artifact)
                self.checked[stage, key] = artifact.content
        return artifact.folder

    def path_as_it_is(self, manifest: Manifest) -> Path:
        return self.folder(manifest.stage, manifest.key)

    def _repair(self, artifact: Artifact) -> None:
        """Move a damaged artifact away and raise BadData; move unlisted files out of an undamaged one."""
        stage = artifact.stage
        key = artifact.key
        with try_file_lock(self.lock_file(stage, key)) as free:
            # Without the lock, the apparent damage may come from a process that replaces the artifact.
            manifest = self.find(stage, key) if free else None
            if manifest is None or manifest.content != artifact.content:
                raise BadData(f"{artifact.folder} is being replaced or was removed meanwhile; run again")
            if damage := self.damage(manifest, every_byte=True):
                moved = self.quarantine(stage, key)
                raise BadData(f"{stage} {key}: {damage}; moved to {moved}; repeat the run, which makes it again")
            self.move_unlisted(manifest)

    def _unlisted(self, manifest: Manifest) -> Sequence[str]:
        """Return the names of files and folders in the artifact that its manifest does not list."""
        return unlisted_names(self.folder(manifest.stage, manifest.key), {MANIFEST, *manifest.files})

    def move_unlisted(self, manifest: Manifest) -> None:
        """Move unlisted files and folders out of the artifact, so that no stage reads them. Raises BadData."""
        folder = self.folder(manifest.stage, manifest.key)
        aside = folder.with_name(f"{folder.name}.unlisted-{uuid.uuid4().hex[:8]}")
        for name in self._unlisted(manifest):
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

    def damage(self, manifest: Manifest, *, every_byte: bool = False) -> str:
        """See ``Store``; ``every_byte`` hashes each file, also one with an unchanged stamp."""
        stamps = self.stamp_file(manifest.stage, manifest.key)
        return folder_damage(self.folder(manifest.stage, manifest.key), manifest.files, stamps, every_byte=every_byte)

    def damages(self, manifest: Manifest) -> Sequence[str]:
        folder = self.folder(manifest.stage, manifest.key)
        found = [damage for name, sums in manifest.files.items() if (damage := file_damage(folder, name, sums))]
        if found:
            with contextlib.suppress(OSError):  # who may only read the root can name the damage
                self.stamp_file(manifest.stage, manifest.key).unlink(missing_ok=True)
        return [*found, *(f"{name} is not listed in its manifest" for name in self._unlisted(manifest))]

    def stamp_file(self, stage: str, key: str) -> Path:
        """Return the file with an artifact's stamps: size, time and inode of each file when it was last hashed."""
        return self.root / "stamps" / f"{stage}-{key}.json"

    def begin(self, stage: str, key: str, resume: Mapping[str, str], attempt: str = "") -> Path:
        suffix = f"resume-{digest_of(resume)[:8]}" if resume else uuid.uuid4().hex[:8]
        folder = self.root / stage / f"{key}.partial-{suffix}"
        attempt_file = self._attempt_file(stage, key)
        is_new = not folder.exists() or (attempt and attempt != _read_text(attempt_file))
        stale_folders = [self.failed_folder(stage, key), *self.unfinished_folders(stage, key)]
        if self.folder(stage, key).exists():  # otherwise ``restore`` may need the replaced one
            stale_folders += folder.parent.glob(f"{key}.replaced-*")
        for stale in stale_folders:
            if (is_new or stale != folder) and stale.exists():
                removed = stale.rename(stale.with_name(f"{key}.removed-{uuid.uuid4().hex[:8]}"))
                shutil.rmtree(removed, ignore_errors=True)  # no job resumes a half-removed folder
        # Outside the folder, because everything in the folder becomes part of the artifact.
        if is_new and attempt:
            write_atomically(attempt_file, attempt)
        elif is_new:
            attempt_file.unlink(missing_ok=True)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def seal(self, partial: Path, description: Mapping[str, Any]) -> Artifact:
        files = {
            name: {"sha256": sha256_of(partial / name), "bytes": (partial / name).stat().st_size}
            for name in _file_names(partial)
        }
        for name in unlisted_names(partial, {MANIFEST, *files}):  # empty folders and unfinished writes
            shutil.rmtree(partial / name) if (partial / name).is_dir() else (partial / name).unlink()
        sync_tree(partial)
        attempt_file = self._attempt_file(description["stage"], description["key"])
        made = {**description["made"], **({"attempt": attempt} if (attempt := _read_text(attempt_file)) else {})}
        manifest = Manifest(files=files, content=content_digest(files), **{**description, "made": made})
        write_durably(partial / MANIFEST, json.dumps(manifest_envelope(manifest), indent=1, ensure_ascii=False))
        stamps = {name: stamp_of(partial / name) for name in files}
        folder = self.folder(manifest.stage, manifest.key)
        # A forced stage replaces an artifact. The old artifact stays complete until this line.
        replaced = self._rename(manifest.stage, manifest.key, "replaced") if folder.exists() else None
        sync(partial)
        partial.rename(folder)
        for parent in (folder.parent, self.root):
            sync(parent)
        attempt_file.unlink(missing_ok=True)
        write_stamps(self.stamp_file(manifest.stage, manifest.key), stamps)
        self.checked[manifest.stage, manifest.key] = manifest.content
        if replaced:
            shutil.rmtree(replaced, ignore_errors=True)
        return self.artifact(manifest)

    def _attempt_file(self, stage: str, key: str) -> Path:
        """Return the file that names the attempt of a key's partial folder. Without it, any attempt may resume."""
        return self.root / "attempts" / f"{stage}-{key}"

    def restore(self, stage: str, key: str, attempt: str = "") -> bool:
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

    def remove(self, stage: str, key: str) -> None:
        self.stamp_file(stage, key).unlink(missing_ok=True)
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self._rename(stage, key, "removed"), ignore_errors=True)

    def quarantine(self, stage: str, key: str) -> str:
        return self._rename(stage, key, "bad").name

    def _rename(self, stage: str, key: str, suffix: str) -> Path:
        folder = self.folder(stage, key)
        renamed = folder.with_name(f"{key}.{suffix}-{uuid.uuid4().hex[:8]}")
        os.utime(folder)  # the age of a leftover counts from its renaming
        folder.rename(renamed)
        return renamed

    def leftovers(self, before: float) -> Iterator[Leftover]:
        return leftover_folders(self, before)


def _file_names(folder: Path) -> Iterator[str]:
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != MANIFEST)
    names = (path.relative_to(folder).as_posix() for path in paths)
    return (name for name in names if ".partial/" not in f"{name}/")


def _read_text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except FileNotFoundError:
        return ""
