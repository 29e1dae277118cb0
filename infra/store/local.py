"""Sealed folders on a disk.

An artifact is written beside its place (``<stage>/<key>.partial-<id>``), described by ``manifest.json`` and renamed,
so that a folder under its own name is whole. A folder without a manifest does not exist. What the files mean, and how
a key comes about, is not known here.
"""

import contextlib
import fnmatch
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MANIFEST = "manifest.json"
LOGS = ("metrics.jsonl", "exit.json", "job.json", "job.sh", "*.log")
"""Names of logs: kept and checked, but timings differ from run to run, so they stay out of the content digest."""


@dataclass(frozen=True)
class Artifact:
    """A sealed folder: ``path()`` is where its files lie, ``facts`` what its stage said of it."""

    stage: str
    key: str
    folder: Path
    content: str = ""
    """Digest over the sorted paths and sums of its files, logs left out; empty while it has not been made."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    home: "Store | None" = field(default=None, repr=False, compare=False)

    def path(self) -> Path:
        """The local folder that holds the files, fetched if the store is remote. Raises BadData, NetworkFault then."""
        return self.home.local_folder(self) if self.home else self.folder

    @property
    def store(self) -> "Store":
        """The store it lies in."""
        return self.home or Store(self.folder.parents[1])


@dataclass(frozen=True)
class Manifest:
    """What ``manifest.json`` says: how the folder was made and what must be in it."""

    stage: str
    key: str
    version: int
    item: str
    arguments: Mapping[str, Any]
    inputs: Mapping[str, str]
    """Content digest of each input artifact when the stage ran, by ``stage/key``."""
    content: str
    facts: Mapping[str, Any]
    files: Mapping[str, Mapping[str, Any]]
    seconds: float
    made: Mapping[str, Any]
    """When, by which commit, with which library versions; in which ``attempt``, where the stage was forced."""


class Store:
    """The artifacts under one root folder. ``infra.store.s3`` makes such a folder the cache of a remote store."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.say: Callable[[str], None] = lambda _: None
        """Where the store tells of what takes long or went wrong."""

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
        """Where the artifact's files lie on this machine."""
        return artifact.folder

    def local(self) -> "Store":
        """The store of what concerns this machine alone."""
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
        """Be without an artifact, from one moment to the next."""
        self.drop_stamps(stage, key)
        with contextlib.suppress(FileNotFoundError):
            self.discard(self._move_aside(stage, key, "removed"))

    def drop_stamps(self, stage: str, key: str) -> None:
        """Trust no file by its looks: the next look hashes."""
        self._stamp_file(stage, key).unlink(missing_ok=True)

    def restore(self, stage: str, key: str) -> bool:  # noqa: ARG002
        """Make an artifact that is not there from what this machine still has of it; whether that was possible."""
        return False

    def release(self) -> None:
        """What was read until now is not read any more."""

    def send(self, path: Path) -> None:
        """Show a small file below the root to all who share the store."""

    def receive(self, folder: str, newest: int = 0) -> None:
        """Have the small files that others sent, the newest only or (0) all."""

    def damage(self, manifest: Manifest) -> str:
        """What is wrong with the artifact's files in a few words, or "".

        A file whose size, time and inode are those seen when it was last hashed is taken as unchanged.
        """
        folder = self.folder(manifest.stage, manifest.key)
        stamps = self._stamps(manifest.stage, manifest.key)
        fresh: dict[str, list[int]] = {}
        for name, expected in manifest.files.items():
            try:
                stamp = stamp_of(folder / name)
                if stamps.get(name) != stamp:
                    if stamp[0] != expected["bytes"]:
                        return f"{name} has {stamp[0]} bytes, not {expected['bytes']}"
                    if sha256_of(folder / name) != expected["sha256"]:
                        return f"{name} was altered"
            except OSError as error:
                return f"{name} cannot be read ({error.strerror})"
            fresh[name] = stamp
        if fresh != stamps:
            self._write_stamps(manifest.stage, manifest.key, fresh)
        return ""

    def partial(self, stage: str, key: str, resume: Mapping[str, str], attempt: str = "") -> Path:
        """A folder to write into. The caller holds the key's lock, so what an earlier holder left is stale.

        With ``resume``, the content of the inputs, an interrupted try over the same content is resumed. With an
        ``attempt`` as well, only a try of that attempt is; what any other left is removed. The manifest will name the
        attempt that began the folder.
        """
        mark = f"resume-{_sum(resume)[:8]}" if resume else uuid.uuid4().hex[:8]
        folder = self.root / stage / f"{key}.partial-{mark}"
        note = self._attempt_file(stage, key)
        anew = not folder.exists() or (attempt and attempt != _text(note))
        for stale in (*folder.parent.glob(f"{key}.partial-*"), *folder.parent.glob(f"{key}.replaced-*")):
            if anew or stale != folder:
                shutil.rmtree(stale, ignore_errors=True)
        # Beside the folder, not in it: all that the folder holds becomes the artifact.
        if anew and attempt:
            note.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(note, attempt)
        elif anew:
            note.unlink(missing_ok=True)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def sync_checkpoint(self, partial: Path) -> None:
        """See to it that what a folder to resume holds by now survives the loss of this machine; returns at once."""

    def discard(self, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)

    def quarantine(self, stage: str, key: str) -> str:
        """Move an artifact out of its place, keeping its bytes for whoever wants to know; says where."""
        return self._move_aside(stage, key, "bad").name

    def _move_aside(self, stage: str, key: str, mark: str) -> Path:
        aside = self.root / stage / f"{key}.{mark}-{uuid.uuid4().hex[:8]}"
        self.folder(stage, key).rename(aside)
        return aside

    def seal(self, partial: Path, description: Mapping[str, Any]) -> Artifact:
        """Make a written folder the artifact: hash, manifest, rename. ``description`` is the rest of the manifest."""
        files = {
            name: {"sha256": sha256_of(partial / name), "bytes": (partial / name).stat().st_size}
            for name in _file_names(partial)
        }
        note = self._attempt_file(description["stage"], description["key"])
        made = {**description["made"], **({"attempt": attempt} if (attempt := _text(note)) else {})}
        manifest = Manifest(files=files, content=content_digest(files), **{**description, "made": made})
        _write_durably(partial / MANIFEST, json.dumps(manifest_envelope(manifest), indent=1, ensure_ascii=False))
        stamps = {name: stamp_of(partial / name) for name in files}
        place = self.folder(manifest.stage, manifest.key)
        # A forced stage replaces what was there, whole until this moment.
        replaced = self._move_aside(manifest.stage, manifest.key, "replaced") if place.exists() else None
        partial.rename(place)
        _sync_folder(place.parent)
        note.unlink(missing_ok=True)
        self._write_stamps(manifest.stage, manifest.key, stamps)
        if replaced:
            shutil.rmtree(replaced, ignore_errors=True)
        return self.artifact(manifest)

    def _attempt_file(self, stage: str, key: str) -> Path:
        """Names the attempt that began the partial folder of a key; there is none where any may have."""
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
        # Only a memory aid: without it the next run hashes again.
        with contextlib.suppress(OSError):
            self._stamp_file(stage, key).parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self._stamp_file(stage, key), json.dumps(stamps))


def manifest_envelope(manifest: Manifest) -> dict[str, Any]:
    """A manifest as it is written, with the sum of itself."""
    return {"sha256": _sum(vars(manifest)), "manifest": vars(manifest)}


def parse_manifest(told: Any) -> Manifest | None:
    """The manifest in an envelope; None where it is not as it was written."""
    try:
        return Manifest(**told["manifest"]) if told["sha256"] == _sum(told["manifest"]) else None
    except (TypeError, KeyError):
        return None


def content_digest(files: Mapping[str, Mapping[str, Any]]) -> str:
    """Digest of what an artifact holds: sorted names and sums, logs left out."""
    lines = [f"{files[name]['sha256']}  {name}\n" for name in sorted(files) if not is_log(name)]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def is_log(name: str) -> bool:
    return any(fnmatch.fnmatch(name.rsplit("/", 1)[-1], pattern) for pattern in LOGS)


def write_atomically(path: Path, text: str) -> None:
    """Write beside and rename, so that a reader sees the old text or the new one."""
    beside = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        beside.write_text(text)
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def _file_names(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != MANIFEST:
            yield path.relative_to(folder).as_posix()


def _sum(form: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(form, sort_keys=True).encode()).hexdigest()


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def stamp_of(path: Path) -> list[int]:
    status = path.stat()
    return [status.st_size, status.st_mtime_ns, status.st_ino]


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write_durably(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
