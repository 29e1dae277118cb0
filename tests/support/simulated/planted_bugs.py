"""Bugs of the kind that such code has had, to show that the simulation finds them. Each is a context manager."""

import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from infra.processes.locks import try_file_lock, try_lock
from infra.store import local
from infra.store.files import sync_tree
from infra.store.local import LocalStore
from infra.store.manifest import MANIFEST, Manifest
from infra.store.s3 import S3Store
from infra.store.s3_client import Bucket
from infra.store.s3_manifests import RemoteManifest, RemoteManifests
from infra.store.store import Artifact
from infra.tracking import registry
from infra.tracking.model_version import Version
from tasks.engine import executor, lookup
from tasks.engine.lookup import Miss, MissReason
from tasks.registration import aliases, promotion
from tasks.registration.aliases import AliasDecision

Bug = Callable[[], AbstractContextManager[Any]]


def no_fsync_of_files() -> AbstractContextManager[Any]:
    return patch.object(local, "sync_tree", lambda folder: None)


def no_fsync_of_folders() -> AbstractContextManager[Any]:
    return patch.object(local, "sync", lambda path: None)


def no_fsync_of_the_manifest() -> AbstractContextManager[Any]:
    return patch.object(local, "write_durably", lambda path, text: path.write_text(text))


def renamed_before_synced() -> AbstractContextManager[Any]:
    real = LocalStore.seal

    def seal(store: LocalStore, partial: Path, description: Mapping[str, Any]) -> Artifact:
        with patch.object(local, "sync_tree", lambda folder: None):
            artifact = real(store, partial, description)
        sync_tree(artifact.folder)
        return artifact

    return patch.object(LocalStore, "seal", seal)


def renamed_before_the_manifest() -> AbstractContextManager[Any]:
    def write(path: Path, text: str) -> None:
        sealed = path.parent.with_name(path.parent.name.partition(".")[0])
        if not sealed.exists():
            path.parent.rename(sealed)
            (sealed / MANIFEST).write_text(text)
            local.sync_tree(sealed)
            sealed.rename(path.parent)
        else:
            path.write_text(text)

    return patch.object(local, "write_durably", write)


def no_second_look_under_the_lock() -> AbstractContextManager[Any]:
    return patch.object(executor.StageExecutor, "_look_again", lambda *arguments: Miss(MissReason.NOT_MADE))


@contextmanager
def _lock_that_stays(path: Path, on_wait: Callable[[str], None]) -> Iterator[int]:
    with executor_lock(path, on_wait) as descriptor:
        copy = os.open(path, os.O_RDWR)
        os.close(descriptor)
        try_lock(copy)
        yield copy


def lock_not_released() -> AbstractContextManager[Any]:
    return patch.object(executor, "file_lock", _lock_that_stays)


@contextmanager
def _no_wait(path: Path, on_wait: Callable[[str], None]) -> Iterator[int]:
    with try_file_lock(path):
        yield 0


def lock_not_waited_for() -> AbstractContextManager[Any]:
    return patch.object(executor, "file_lock", _no_wait)


def damage_ignored() -> AbstractContextManager[Any]:
    return patch.object(LocalStore, "damage", lambda store, manifest: "")


def content_of_inputs_ignored() -> AbstractContextManager[Any]:
    return patch.object(lookup, "changed_input", lambda call, manifest: "")


def folder_of_another_attempt_resumed() -> AbstractContextManager[Any]:
    real = LocalStore.begin

    def partial(store: LocalStore, stage: str, key: str, resume: Mapping[str, str], attempt: str = "") -> Path:
        if attempt:
            local.write_atomically(store._attempt_file(stage, key), attempt)
        return real(store, stage, key, resume, attempt)

    return patch.object(LocalStore, "begin", partial)


def replaced_artifact_not_restored() -> AbstractContextManager[Any]:
    return patch.object(LocalStore, "restore", lambda *arguments: False)


def input_replaced_while_it_is_read() -> AbstractContextManager[Any]:
    return patch.object(Artifact, "is_replaced", lambda artifact: False)


executor_lock = executor.file_lock
QUICKLY_FOUND: tuple[Bug, ...] = (
    no_fsync_of_files,
    no_fsync_of_folders,
    no_fsync_of_the_manifest,
    renamed_before_synced,
    renamed_before_the_manifest,
    no_second_look_under_the_lock,
    lock_not_released,
    lock_not_waited_for,
    content_of_inputs_ignored,
    folder_of_another_attempt_resumed,
    input_replaced_while_it_is_read,
)
FOUND_LATER: tuple[Bug, ...] = (
    damage_ignored,
    replaced_artifact_not_restored,
)


def version_of_the_run_trusted() -> AbstractContextManager[Any]:
    """A repeated registration takes the version of its run for its own, whatever that was made from."""

    def of_run(uri: str, before: list[Version], run_id: str, *told: Any) -> Version | None:
        return next((each for each in before if each.run_id == run_id), None)

    return patch.object(promotion, "_of_interrupted_attempt", of_run)


def aliases_not_moved_again() -> AbstractContextManager[Any]:
    """A repeated registration finds its version and leaves it at that."""
    real = promotion.move_aliases

    def move(uri: str, own: Version, before: Sequence[Version], min_bleu: float) -> AliasDecision:
        again = any(version.version == own.version for version in before)
        return AliasDecision((), "", None) if again else real(uri, own, before, min_bleu)

    return patch.object(promotion, "move_aliases", move)


def alias_moved_before_its_reason() -> AbstractContextManager[Any]:
    real = aliases.set_alias

    def move(uri: str, version: Version, alias: str, *reason: str) -> str:
        registry.mlflow_client(uri).set_registered_model_alias(version.name, alias, f"{version.version}")
        return real(uri, version, alias, *reason)

    return patch.object(aliases, "set_alias", move)


IN_THE_REGISTRY: tuple[Bug, ...] = (
    version_of_the_run_trusted,
    aliases_not_moved_again,
    alias_moved_before_its_reason,
)


def conditional_put_dropped() -> AbstractContextManager[Any]:
    return patch.object(Bucket, "put_if_absent", Bucket.put)


@contextmanager
def manifest_sent_before_the_files() -> Iterator[None]:
    real = Bucket.put_if_absent

    def upload(store: S3Store, manifest: Manifest) -> RemoteManifest:
        sent = RemoteManifest(manifest, uuid.uuid4().hex[:12], {})
        folder = store.folder(manifest.stage, manifest.key)
        store.bucket.__dict__["late"] = [(folder / name, sent.key_of(name)) for name in manifest.files]
        return sent

    def put(bucket: Bucket, name: str, content: bytes) -> None:
        real(bucket, name, content)
        for path, key in bucket.__dict__.pop("late", ()):
            bucket.upload(path, key)

    with patch.object(S3Store, "_upload", upload), patch.object(Bucket, "put_if_absent", put):
        yield


def replaced_files_deleted_before_the_manifest() -> AbstractContextManager[Any]:
    real = S3Store._upload

    def upload(store: S3Store, manifest: Manifest) -> RemoteManifest:
        sent = real(store, manifest)
        if old := store._manifests.get(manifest.stage, manifest.key):
            store.bucket.delete(map(old.key_of, old.manifest.files))
        return sent

    return patch.object(S3Store, "_upload", upload)


def manifest_replaced_without_another_look() -> AbstractContextManager[Any]:
    return patch.object(RemoteManifests, "is_unchanged", lambda *arguments: True)


IN_A_BUCKET: tuple[Bug, ...] = (
    manifest_replaced_without_another_look,
    conditional_put_dropped,
    manifest_sent_before_the_files,
    replaced_files_deleted_before_the_manifest,
)
