"""Maintenance of a store: find the leftovers of interrupted work, and hash every byte of an artifact.

Leftovers are partial folders, quarantined files and unfinished uploads that are old and that no process holds.
"""

import contextlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from infra.processes.locks import try_file_lock
from infra.store.bucket_probe import PROBE
from infra.store.files import names_by_stage
from infra.store.local import Store, file_damage
from infra.store.manifest import MANIFEST, Manifest
from infra.store.s3 import S3Store
from infra.store.s3_client import Bucket, NoSuchKey, ObjectInfo

LEFTOVER = re.compile(r"[^.]*\.(partial|bad|replaced|removed|fetch|unlisted)(-|$)")
"""Names of leftovers in the folder of a stage."""


@dataclass(frozen=True)
class Leftover:
    """A folder, or objects below a name: ``place`` for people, its size, and the function that removes it."""

    place: str
    bytes: int
    remove: Callable[[], object]


def leftovers(store: Store, before: float) -> Iterator[Leftover]:
    """Everything left over and not modified since ``before``, in seconds since 1970 by this machine's clock."""
    found = (
        (stage, name) for stage, names in names_by_stage(store.root) for name in sorted(filter(LEFTOVER.match, names))
    )
    for stage, name in found:
        key, folder = name.partition(".")[0], store.folder(stage, name)
        files = list(_statuses(folder)) if folder.is_dir() else []
        if files and max(status.st_mtime for status in files) < before:
            size = sum(status.st_size for status in files)
            yield Leftover(f"{stage}/{name}", size, partial(_remove, store.local(), folder, stage, key))
    if isinstance(store, S3Store):
        # A machine whose clock is ahead would take for old what others upload at this moment.
        yield from _leftover_objects(store.bucket, before + store.bucket.clock_offset())


def _statuses(folder: Path) -> Iterator[os.stat_result]:
    """Of a folder and everything in it, which others may remove meanwhile."""
    for path in (folder, *folder.rglob("*")):
        with contextlib.suppress(FileNotFoundError):
            yield path.stat()


def _remove(store: Store, folder: Path, stage: str, key: str) -> None:
    """Remove a folder that no process works on, unless it is an artifact whose replacement was cut short."""
    with try_file_lock(store.lock_file(stage, key)) as free:
        if free:
            store.restore(stage, key)
            shutil.rmtree(folder, ignore_errors=True)


def _leftover_objects(bucket: Bucket, before: float) -> Iterator[Leftover]:
    groups: dict[str, dict[str, ObjectInfo]] = {}
    manifests: dict[str, ObjectInfo] = {}
    for name, info in bucket.list("").items():
        parts = name.split("/")
        if len(parts) > 3:
            groups.setdefault("/".join(parts[:3]), {})[name] = info
        elif len(parts) == 3 and parts[2].startswith("manifest"):
            manifests[name] = info
        elif parts[0] == PROBE and info.modified < before:
            yield Leftover(name, info.bytes, partial(bucket.delete, [name]))
    # Keep the files that a manifest names, a quarantined one included, until the manifest itself is removed.
    for name, info in manifests.items():
        if not name.endswith(f"/{MANIFEST}") and info.modified < before:
            yield Leftover(name, info.bytes, partial(bucket.delete, [name]))
        else:
            groups.pop(f"{name.rpartition('/')[0]}/{_files_id(bucket, name)}", None)
    for place, group in sorted(groups.items()):
        if max(info.modified for info in group.values()) < before:
            size = sum(info.bytes for info in group.values())
            yield Leftover(place, size, partial(bucket.delete, tuple(group)))
    if uploads := bucket.abort_uploads(before, delete=False):
        remove = partial(bucket.abort_uploads, before, delete=True)
        yield Leftover(f"{uploads} uploads in parts that never ended", 0, remove)


def _files_id(bucket: Bucket, manifest: str) -> str:
    try:
        return str(json.loads(bucket.read(manifest))["id"])
    except (NoSuchKey, ValueError, KeyError, TypeError):
        return ""


def rehash(store: Store, manifest: Manifest) -> list[str]:
    """The damage of each file, every byte read, and the files that the manifest does not list; empty if all is well.

    The next run makes a damaged artifact again, and moves unlisted files away before a stage reads the artifact.
    """
    if isinstance(store, S3Store):
        damages = list(store.rehash(manifest))
        if damages:
            store.quarantine(manifest.stage, manifest.key)
    else:
        folder, files = store.folder(manifest.stage, manifest.key), manifest.files.items()
        damages = [damage for name, expected in files if (damage := file_damage(folder, name, expected))]
        if damages:
            store.drop_stamps(manifest.stage, manifest.key)
    return [*damages, *(f"{name} is not listed in its manifest" for name in store.unlisted(manifest))]
