"""Deletes a registered version with what serves it alone, and says before what goes and what stays.

With the version go its aliases, its model in MLflow with the files, and the artifact of ``register``. The weights, the
vocabulary and the scores that it was made from stay: garbage collection removes those that nothing else needs.
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from flows.inspection.artifact_graph import Name, artifacts_of_tags, read_nodes
from flows.inspection.garbage_collection import needed_artifacts
from infra.processes.locks import try_file_lock
from infra.site import Site, open_store
from infra.store.files import files_below
from infra.store.store import Store
from infra.tracking.model_files import MODEL_ID, stored_folder
from infra.tracking.model_version import Version
from infra.tracking.registry import delete_version, versions


@dataclass(frozen=True)
class Deletion:
    """A version, and what its removal removes and leaves."""

    version: Version
    store: Store
    folder: Path | None
    """Its files, where they are below this root and no other version has them."""
    registrations: Sequence[Name]
    """The artifacts of the stage ``register`` that made it."""
    for_gc: Sequence[Name]
    """Artifacts that only this version keeps."""
    children: Sequence[str]
    """Versions whose training began from it; they stay."""

    @property
    def bytes(self) -> int:
        return sum(path.stat().st_size for path in files_below(self.folder)) if self.folder else 0


def plan_deletion(site: Site, version: Version) -> Deletion:
    """What the removal of ``version`` would remove. Removes nothing."""
    store = open_store(site)
    name = f"{version.name}/{version.version}"
    others = [each for each in versions(site.registry) if (each.name, each.version) != (version.name, version.version)]
    at = store if site.shares_tracking else store.local()
    made = [(each.stage, each.key) for each in at.list("register") if _registers(each.facts, version)]
    needed = needed_artifacts(store, site, (), read_nodes(store.list()))
    shared = {each for other in others for each in artifacts_of_tags(other)}
    for_gc = [each for each, why in needed.items() if why == f"version {name}" and each not in shared]
    children = [f"{each.name}/{each.version}" for each in others if each.tags.get("start") == name]
    folder = stored_folder(site.registry, version)
    below = folder and MODEL_ID.search(f"{folder}") and folder.is_relative_to(site.root.absolute())
    is_own = below and not any(each.source == version.source for each in others)
    return Deletion(version, at, folder if is_own else None, made, for_gc, children)


def delete(site: Site, planned: Deletion) -> None:
    """Remove what was planned, first the version, so that nothing names what is gone."""
    delete_version(site.tracking, planned.version)
    for stage, key in planned.registrations:
        with try_file_lock(planned.store.lock_file(stage, key)) as free:
            if free:
                planned.store.remove(stage, key)
    if planned.folder:
        shutil.rmtree(planned.folder, ignore_errors=True)


def _registers(facts: object, version: Version) -> bool:
    return isinstance(facts, dict) and (facts.get("name"), facts.get("version")) == (version.name, version.version)
