"""Bugs of the kind that such code has had, to show that the simulation finds them. Each is a context manager."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from infra.processes.locks import try_file_lock
from infra.store import local
from infra.store.files import sync_tree
from infra.store.local import LocalStore
from infra.store.store import Artifact
from tasks.engine import lookup, runner
from tasks.engine.lookup import Miss, MissReason

Bug = Callable[[], AbstractContextManager[Any]]


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


def no_second_look_under_the_lock() -> AbstractContextManager[Any]:
    return patch.object(runner.Runner, "_look_again", lambda *arguments: Miss(MissReason.NOT_MADE))


@contextmanager
def _no_wait(path: Path, on_wait: Callable[[str], None]) -> Iterator[int]:
    with try_file_lock(path):
        yield 0


def lock_not_waited_for() -> AbstractContextManager[Any]:
    return patch.object(runner, "file_lock", _no_wait)


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


QUICKLY_FOUND: tuple[Bug, ...] = (
    no_fsync_of_folders,
    no_fsync_of_the_manifest,
    renamed_before_synced,
    no_second_look_under_the_lock,
    lock_not_waited_for,
    content_of_inputs_ignored,
    input_replaced_while_it_is_read,
)
FOUND_LATER: tuple[Bug, ...] = (damage_ignored, folder_of_another_attempt_resumed, replaced_artifact_not_restored)
