"""The artifacts of runs by their readable names: key, size, age, state and place of each. Writes nothing."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from flows.runner.artifact_names import ArtifactName, existing_manifest, find_artifacts
from infra.errors import BadConfiguration, BadData
from infra.site import Site, open_store
from infra.store.manifest import Manifest, bytes_of
from infra.store.store import Artifact, Store


@dataclass(frozen=True)
class ListedArtifact:
    """The newest artifact of one stage and item of a run."""

    name: str
    run: str
    stage: str
    item: str
    key: str
    state: Literal["there", "missing", "damaged"]
    why: str
    """What is damaged."""
    bytes: int
    made: str
    """When it was sealed, in ISO 8601; "" where that is unknown."""
    path: str
    """Its folder, or its address in the bucket."""

    @property
    def age_seconds(self) -> float | None:
        return (datetime.now(UTC) - datetime.fromisoformat(self.made)).total_seconds() if self.made else None

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "age_seconds": self.age_seconds}


def list_artifacts(text: str, site: Site, overrides: Sequence[str] = ()) -> list[ListedArtifact]:
    """What ``RUN[/STAGE[/ITEM]]`` names, "" all runs, the latest first; missing ones come last.

    Raises BadConfiguration if no record has such an artifact.

    Files whose size, time and inode are as when they were last hashed count as undamaged; others are hashed.
    """
    store = open_store(site)
    looked_up: dict[tuple[str, str], tuple[Store, Manifest | None, str]] = {}
    listed = []
    for name, key in find_artifacts(store, text, overrides).items():
        if (name.stage, key) not in looked_up:  # runs share artifacts
            looked_up[name.stage, key] = look_up(store, name.stage, key)
        listed.append(_listed(name, key, *looked_up[name.stage, key]))
    return sorted(listed, key=lambda each: each.made, reverse=True)


def artifact_folders(text: str, site: Site, overrides: Sequence[str] = ()) -> list[Path]:
    """The folders of what ``RUN/STAGE[/ITEM]`` names, downloaded if they are in a bucket.

    Raises BadConfiguration for a name without a stage, BadData for an artifact that is missing or damaged.
    """
    store = open_store(site)
    found = find_artifacts(store, text, overrides)
    if "/" not in text:
        stages = ", ".join(dict.fromkeys(f"{name.run}/{name.stage}" for name in found))
        raise BadConfiguration(f"{text!r} names a whole run, allowed is a stage of it: {stages}")
    return [folder_of(store, f"{name}", name.stage, key) for name, key in found.items()]


def find_artifact(text: str, site: Site, overrides: Sequence[str] = ()) -> Artifact:
    """The newest artifact that ``RUN/STAGE[/ITEM]`` names.

    Raises BadConfiguration if the name means none or several, or the artifact is missing.
    """
    store = open_store(site)
    found = find_artifacts(store, text, overrides)
    if len(found) != 1:
        raise BadConfiguration(
            f"{text!r} names {len(found)} artifacts, allowed is one of: {', '.join(map(str, found))}"
        )
    [(name, key)] = found.items()
    return store.artifact(existing_manifest(store, text, name.stage, key))


def folder_of(store: Store, name: str, stage: str, key: str) -> Path:
    """The folder of an artifact, downloaded if it is in a bucket. Raises BadData if it is missing or damaged."""
    place, manifest, damage = look_up(store, stage, key)
    if manifest is None or damage:
        problem = damage or "it is missing"
        raise BadData(f"{name} is {place.address(stage, key)}, but {problem}: the next run makes it again")
    # A bucket's file is checked as it is downloaded; a folder may be on a disk that cannot be written.
    return place.path_as_it_is(manifest)


def look_up(store: Store, stage: str, key: str) -> tuple[Store, Manifest | None, str]:
    """The store that has the artifact, its manifest, and its damage. ``register`` may be on this machine alone."""
    places = dict.fromkeys([store, store.local()])
    for place in places:
        if manifest := place.find(stage, key):
            return place, manifest, place.damage(manifest)
    for place in places:
        if place.has(stage, key):
            return place, None, "its manifest.json is missing, damaged or another artifact's"
    return store, None, ""


def _listed(name: ArtifactName, key: str, place: Store, manifest: Manifest | None, damage: str) -> ListedArtifact:
    state: Literal["there", "missing", "damaged"] = "damaged" if damage else "there" if manifest else "missing"
    size, made = (bytes_of(manifest), f"{manifest.made.get('at', '')}") if manifest else (0, "")
    where = place.address(name.stage, key)
    return ListedArtifact(f"{name}", name.run, name.stage, name.item, key, state, damage, size, made, where)
