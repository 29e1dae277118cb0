"""Finds what interrupted work left: partial folders, artifacts moved aside, and unfinished uploads, all unlocked."""

import contextlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from infra.processes.locks import try_file_lock
from infra.store.bucket_probe import PROBE
from infra.store.files import files_below, names_by_stage
from infra.store.manifest import MANIFEST
from infra.store.s3_client import AccessRefused, Bucket, NoSuchKey, ObjectInfo
from infra.store.store import Leftover, Store

LEFTOVER = re.compile(r"[^.]*\.(partial|bad|failed|replaced|removed|fetch|unlisted)(-|$)")
"""Matches the names of leftovers in the folder of a stage."""


def leftover_folders(store: Store, before: float) -> Iterator[Leftover]:
    """Yield the leftover folders of a local store that are unmodified since ``before`` (seconds since 1970)."""
    for stage, names in names_by_stage(store.root):
        for name in sorted(filter(LEFTOVER.match, names)):
            folder = store.folder(stage, name)
            files = list(_statuses(folder)) if folder.is_dir() else []
            if files and max(status.st_mtime for status in files) < before:
                size = sum(status.st_size for status in files)
                key = name.partition(".")[0]
                yield Leftover(f"{stage}/{name}", size, partial(_remove, store, folder, stage, key, before))


def _statuses(folder: Path) -> Iterator[os.stat_result]:
    """Yield the statuses of a folder and its files. Others may remove files meanwhile."""
    for path in (folder, *files_below(folder)):
        with contextlib.suppress(FileNotFoundError):
            yield path.stat()


def _remove(store: Store, folder: Path, stage: str, key: str, before: float) -> bool:
    """Remove a folder that no process uses, or used since it was found; restore an artifact that was being replaced."""
    with try_file_lock(store.lock_file(stage, key)) as free:
        if free and all(status.st_mtime < before for status in _statuses(folder)):
            restored = store.restore(stage, key)
            if restored and not folder.exists():  # the leftover is the artifact again
                return False
            shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()


def leftover_objects(bucket: Bucket, before: float) -> Iterator[Leftover]:
    """Yield the leftover objects that are unmodified since ``before``, by the clock of the bucket."""
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
    # Keep the files that a manifest lists, also a quarantined one, until the manifest itself is removed.
    for name, info in manifests.items():
        if not name.endswith(f"/{MANIFEST}") and info.modified < before:
            yield Leftover(name, info.bytes, partial(bucket.delete, [name]))
        else:
            with contextlib.suppress(NoSuchKey, ValueError, KeyError, TypeError):  # a manifest that nobody can read
                groups.pop(f"{name.rpartition('/')[0]}/{json.loads(bucket.read(name))['id']}", None)
    for place, group in sorted(groups.items()):
        if max(info.modified for info in group.values()) < before:
            size = sum(info.bytes for info in group.values())
            yield Leftover(place, size, partial(bucket.delete, tuple(group)))
    with contextlib.suppress(AccessRefused):  # readers without this right need not see them
        if uploads := bucket.abort_uploads(before, delete=False):
            remove = partial(bucket.abort_uploads, before, delete=True)
            yield Leftover(f"{uploads} uploads in parts that never ended", 0, remove)
