"""Verifies the checksums of artifacts of some runs, or of all artifacts of a site."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from flows.runner.artifact_names import find_artifacts
from infra.errors import Fault
from infra.site import Site, open_store
from infra.store.manifest import Manifest
from infra.store.store import Store
from infra.tracking.model_files import stored_damage
from infra.tracking.registry import resolve


@dataclass(frozen=True)
class ArtifactCheck:
    """An artifact and its problems; none if its files are as sealed."""

    stage: str
    key: str
    place: str
    wrong: tuple[str, ...]


def verify(runs: Sequence[str], site_name: str, on_progress: Callable[[int, int, str], None]) -> list[ArtifactCheck]:
    """Hash the files of each artifact; calls ``on_progress(done, total, label)`` before each.

    ``runs`` are runs, or names of artifacts such as ``demo/clean``. Raises BadConfiguration for an unknown one.
    """
    site = Site.named(site_name)
    store = open_store(site)
    wanted = {(name.stage, key) for text in runs for name, key in find_artifacts(store, text).items()}
    places = dict.fromkeys([store.local(), store])  # of a remote store, first the artifacts on this machine
    todo = [(place, *name) for place in places for name in place.names() if not runs or name in wanted]
    missing = sorted(wanted - {(stage, key) for _, stage, key in todo})
    checked = [ArtifactCheck(*name, store.address(*name), ("it is missing",)) for name in missing]
    for done, (place, stage, key) in enumerate(todo):
        on_progress(done, len(todo), f"{stage} {key}")
        manifest = place.find(stage, key)
        wrong = [*place.damages(manifest)] if manifest else ["manifest.json is not as it was written"]
        wrong += _model_damage(place, manifest, site) if manifest and stage == "register" else []
        checked.append(ArtifactCheck(stage, key, place.address(stage, key), tuple(wrong)))
    return checked


def _model_damage(store: Store, manifest: Manifest, site: Site) -> list[str]:
    """List problems of the registered version's files in MLflow's artifact store."""
    try:
        made = json.loads((store.artifact(manifest).path() / "version.json").read_text())
        damage = stored_damage(site.tracking, resolve(site.tracking, f"{made['name']}/{made['version']}"))
    except (Fault, OSError, ValueError, KeyError) as fault:
        damage = f"{fault}"
    return [f"the registered model: {damage}"] if damage else []
