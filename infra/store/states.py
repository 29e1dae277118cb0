"""What a finished stage leaves beside its artifact, so that a longer call of it can go on: ``<stage>/<key>.state/``.

It is no part of the artifact, stays on this machine, and is of use only as long as the artifact is there.
"""

import shutil
from collections.abc import Container, Iterator
from functools import partial
from pathlib import Path

from infra.store.store import Leftover, Store

SUFFIX = ".state"


def state_folder(artifact: Path) -> Path:
    """Where the state beside an artifact's folder is, or would be."""
    return artifact.with_suffix(SUFFIX)


def state_keys(store: Store, stage: str = "*") -> list[str]:
    """The keys of a stage that have a state here."""
    return sorted(path.stem for path in store.root.glob(f"{stage}/*{SUFFIX}"))


def unneeded_states(store: Store, needed: Container[tuple[str, str]]) -> Iterator[Leftover]:
    """The states of artifacts that are not ``needed`` and that nobody makes at the moment."""
    for folder in sorted(store.root.glob(f"*/*{SUFFIX}")):
        name = (folder.parent.name, folder.stem)
        if name not in needed and not store.is_locked(*name):
            size = sum(path.stat().st_size for path in folder.iterdir())
            yield Leftover(f"{name[0]}/{folder.name}", size, partial(shutil.rmtree, folder, ignore_errors=True))
