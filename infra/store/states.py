"""State beside a finished artifact, from which a longer call of its stage can continue: ``<stage>/<key>.state/``.

It is not part of the artifact, stays on this machine, and is useful only while the artifact exists.
"""

import shutil
from collections.abc import Container, Iterator
from functools import partial
from pathlib import Path

from infra.processes.locks import try_file_lock
from infra.store.store import Leftover, Store

SUFFIX = ".state"


def state_folder(artifact: Path) -> Path:
    """Return the folder for the state beside an artifact's folder; it may not exist."""
    return artifact.with_suffix(SUFFIX)


def state_keys(store: Store, stage: str = "*") -> list[str]:
    """Return the keys of a stage that have a state here."""
    return sorted(path.stem for path in store.root.glob(f"{stage}/*{SUFFIX}"))


def unneeded_states(store: Store, needed: Container[tuple[str, str]]) -> Iterator[Leftover]:
    """Yield the states of artifacts that are not ``needed`` and that no process is making."""
    for folder in sorted(store.root.glob(f"*/*{SUFFIX}")):
        name = (folder.parent.name, folder.stem)
        if name not in needed and not store.is_locked(*name):
            size = sum(path.stat().st_size for path in folder.iterdir())
            yield Leftover(f"{name[0]}/{folder.name}", size, partial(_remove, store, folder), name)


def _remove(store: Store, folder: Path) -> bool:
    """Remove a state unless a process makes its artifact."""
    with try_file_lock(store.lock_file(folder.parent.name, folder.stem)) as free:
        if free:
            shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()
