"""Deletes a registered version with the data that only it uses, and first says what goes and what stays.

The version's aliases, its model in MLflow with the files, and the artifact of ``register`` go too. Its weights,
vocabulary and scores stay: garbage collection removes those that no recorded run and no other version needs.
"""

import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from flows.inspection.artifact_graph import ArtifactGraph, Name, artifacts_of_tags, read_graph
from flows.runner.recorded_runs import read_headers, with_stages
from infra.processes.locks import try_file_lock
from infra.servers.relocation import ARTIFACTS
from infra.site import Site, open_store
from infra.store.store import Store
from infra.tracking.model_files import MODEL_ID, stored_folder
from infra.tracking.model_version import Version
from infra.tracking.registry import delete_version


@dataclass(frozen=True)
class Deletion:
    """What the removal of a version removes and leaves."""

    version: Version
    store: Store
    folder: Path | None
    """Its files, if they are below this root and no other version uses them."""
    registrations: Sequence[Name]
    """The artifacts of the stage ``register`` that made it."""
    records: Sequence[Path]
    """Records that keep its weights or training, also of stopped starts, if no other version has these."""
    children: Sequence[str]
    """Versions whose training began from it; they stay."""


def plan_deletion(site: Site, version: Version) -> Deletion:
    """Plan the removal of ``version``. Removes nothing."""
    store = open_store(site)
    graph = read_graph(site)
    others = {label: each for label, each in graph.versions.items() if label != version.label}
    shared = {artifact for each in others.values() for artifact in artifacts_of_tags(each)}
    weights = {name for name in artifacts_of_tags(version) if name[0] in ("average", "train")}
    wholes = filter(None, map(with_stages, read_headers(store.root)))
    records = [each.path for each in wholes if (weights - shared) & {(row.stage, row.key) for row in each.stages}]
    children = [label for label, each in others.items() if weights & read_by_training(each, graph)]
    root = (site.root / ARTIFACTS).resolve()
    folder = (stored := stored_folder(site.registry, version)) and stored.resolve()
    below = folder and folder.is_relative_to(root) and MODEL_ID.search(f"{folder.relative_to(root)}")
    own = folder if below and not any(each.source == version.source for each in others.values()) else None
    home = store if site.shares_tracking else store.local()
    return Deletion(version, home, own, graph.registration(version.label), records, children)


def read_by_training(version: Version, graph: ArtifactGraph) -> set[Name]:
    """Return the inputs of a version's training; with ``training.start`` they include weights."""
    return {source for name in artifacts_of_tags(version) if name[0] == "train" for source in graph.inputs(name)}


def delete(site: Site, planned: Deletion, *, records: bool = False) -> None:
    """Remove what was planned, the version first, so that no name points to removed data; ``records`` only if asked."""
    delete_version(site.tracking, planned.version)
    for path in planned.records if records else ():
        path.unlink(missing_ok=True)
    for stage, key in planned.registrations:
        with try_file_lock(planned.store.lock_file(stage, key)) as free:
            if free:
                planned.store.remove(stage, key)
    if planned.folder:
        shutil.rmtree(planned.folder, ignore_errors=True)
        with suppress(OSError):  # the folder that MLflow made around the model
            planned.folder.parent.rmdir()
