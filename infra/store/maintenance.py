"""Maintenance of a store: find leftovers of interrupted work, and read every byte of an artifact anew.

Leftovers are partial folders, files set aside and unfinished uploads that nobody has touched for a while and nobody
holds. What an artifact means is not known here.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from infra.processes.locks import try_file_lock
from infra.store.local import MANIFEST, Manifest, Store, sha256_of
from infra.store.s3 import S3Store
from infra.store.s3_client import NoSuchKey, ObjectInfo

LEFTOVER_SUFFIXES = ("partial", "bad", "replaced", "removed", "fetch")


@dataclass(frozen=True)
class Leftover:
    """A folder, or objects below one, with what it is for people, and how to be rid of it."""

    place: str
    bytes: int
    remove: Callable[[], None]


def leftovers(store: Store, before: float) -> Iterator[Leftover]:
    """Everything left over and not touched since ``before``, in seconds since 1970."""
    for mark in LEFTOVER_SUFFIXES:
        for folder in sorted(store.root.glob(f"*/*.{mark}-*")):
            files = [path.stat() for path in (folder, *folder.rglob("*")) if path.exists()]
            if folder.is_dir() and max(status.st_mtime for status in files) < before:
                lock = store.lock_file(folder.parent.name, folder.name.partition(".")[0])
                size = sum(status.st_size for status in files)
                yield Leftover(f"{folder.parent.name}/{folder.name}", size, lambda f=folder, k=lock: _remove(f, k))  # type: ignore[misc]
    if isinstance(store, S3Store):
        yield from _objects(store, before)


def _remove(folder: Path, lock: Path) -> None:
    with try_file_lock(lock) as free:
        if free:
            shutil.rmtree(folder, ignore_errors=True)


def _objects(store: S3Store, before: float) -> Iterator[Leftover]:
    groups: dict[str, dict[str, ObjectInfo]] = {}
    manifests: dict[str, ObjectInfo] = {}
    for name, about in store.bucket.list("").items():
        parts = name.split("/")
        if len(parts) > 3:
            groups.setdefault("/".join(parts[:3]), {})[name] = about
        elif len(parts) == 3 and parts[2].startswith("manifest"):
            manifests[name] = about
    # Half of an upload is younger than its manifest will be: what a manifest names, the one set aside too, stays.
    for name, about in manifests.items():
        aside = not name.endswith(f"/{MANIFEST}")
        if aside and about.modified < before:
            yield Leftover(name, about.bytes, lambda n=name: store.bucket.delete([n]))  # type: ignore[misc]
        else:
            groups.pop(f"{name.rpartition('/')[0]}/{_id(store, name)}", None)
    for place, group in sorted(groups.items()):
        if max(about.modified for about in group.values()) < before:
            size = sum(about.bytes for about in group.values())
            yield Leftover(place, size, lambda g=tuple(group): store.bucket.delete(g))  # type: ignore[misc]
    if uploads := store.bucket.abort_uploads(before, delete=False):
        told = f"{uploads} uploads in parts that never ended"
        yield Leftover(told, 0, lambda: _abort(store, before))


def _abort(store: S3Store, before: float) -> None:
    store.bucket.abort_uploads(before, delete=True)


def _id(store: S3Store, name: str) -> str:
    try:
        return str(json.loads(store.bucket.read(name))["id"])
    except (NoSuchKey, ValueError, KeyError, TypeError):
        return ""


def rehash(store: Store, manifest: Manifest) -> list[str]:
    """Each damaged or missing file in a few words, none where all is right.

    What is damaged is not trusted by its looks any more: the next run that needs it makes it again.
    """
    if isinstance(store, S3Store):
        wrong = list(store.rehash(manifest))
        if wrong:
            store.quarantine(manifest.stage, manifest.key)
        return wrong
    wrong = [found for name in manifest.files if (found := _damage(store, manifest, name))]
    if wrong:
        store.drop_stamps(manifest.stage, manifest.key)
    return wrong


def _damage(store: Store, manifest: Manifest, name: str) -> str:
    path, expected = store.folder(manifest.stage, manifest.key) / name, manifest.files[name]
    try:
        if path.stat().st_size != expected["bytes"]:
            return f"{name} has {path.stat().st_size} bytes, not {expected['bytes']}"
        return "" if sha256_of(path) == expected["sha256"] else f"{name} was altered"
    except OSError as error:
        return f"{name} cannot be read ({error.strerror})"
