"""Finds artifacts by name: their state, their place, their inputs, and everything made from them."""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

from flows.inspection.artifact_graph import ArtifactGraph, Name, read_graph
from flows.runner.artifact_names import ArtifactName, existing_manifest, find_artifacts, is_version, parse_name
from flows.runner.find_run import find_version, recorded_name, split_name
from flows.runner.systems import SYSTEM
from infra.errors import BadConfiguration, BadData
from infra.site import Site, open_store
from infra.store.manifest import Manifest, bytes_of
from infra.store.store import Artifact, Store
from infra.tracking.model_files import local_folder
from infra.tracking.model_version import Version
from infra.tracking.registry import resolve


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
    """Why it is damaged."""
    bytes: int
    made: str
    """When it was sealed, in ISO 8601; "" if unknown."""
    path: str
    """Its folder, or its address in the bucket."""

    @property
    def age_seconds(self) -> float | None:
        return (datetime.now(UTC) - datetime.fromisoformat(self.made)).total_seconds() if self.made else None

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "age_seconds": self.age_seconds}


def list_artifacts(text: str, site: Site, overrides: Sequence[str] = ()) -> list[ListedArtifact]:
    """List the artifacts that ``RUN[/STAGE[/ITEM]]`` names ("": of all runs), the latest first, missing ones last.

    Raises BadConfiguration if no record has such an artifact.

    Files with unchanged size, time and inode since the last hash count as undamaged; others are hashed.
    """
    look = cache(partial(look_up, open_store(site)))  # runs share artifacts: look each up once
    found = find_artifacts(open_store(site), text, overrides).items()
    listed = (_listed(name, key, *look(name.stage, key)) for name, key in found)
    return sorted(listed, key=lambda each: each.made, reverse=True)


def find_artifact(text: str, site: Site, overrides: Sequence[str] = ()) -> Artifact:
    """Find the newest artifact that ``RUN/STAGE[/ITEM]`` names.

    Raises BadConfiguration if the name means no or several artifacts, or the artifact is missing.
    """
    store = open_store(site)
    found = find_artifacts(store, text, overrides)
    if (exact := parse_name(text)) in found:  # demo-distilled/train, not demo-distilled/train/teacher/seed-1
        found = {exact: found[exact]}
    if len(found) != 1:
        raise BadConfiguration(f"{text!r} names {len(found)} artifacts, choose one of: {', '.join(map(str, found))}")
    [(name, key)] = found.items()
    place = look_up(store, name.stage, key)[0]
    return place.artifact(existing_manifest(place, text, name.stage, key))


def folder_of(store: Store, name: str, stage: str, key: str) -> Path:
    """Return the folder of an artifact, downloaded if it is in a bucket. Raises BadData if it is missing or damaged."""
    place, manifest, damage = look_up(store, stage, key)
    if manifest is None or damage:
        problem = damage or "it is missing"
        raise BadData(f"{name} is {place.address(stage, key)}, but {problem}: the next run makes it again")
    # Downloads from a bucket are checked; a folder may be on a read-only disk.
    return place.path_as_it_is(manifest)


def look_up(store: Store, stage: str, key: str) -> tuple[Store, Manifest | None, str]:
    """Return the store, the manifest and the damage of an artifact. ``register`` may exist only on this machine."""
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


KEY = re.compile(r"(?:(?P<stage>[a-z_]+)/)?(?P<key>[0-9a-f]{6,})")
RAW_STAGE = "download"


@dataclass(frozen=True)
class Lineage:
    """The starting artifacts, their inputs, and everything made from them."""

    title: str
    start: tuple[Name, ...]
    graph: ArtifactGraph
    store: Store
    version: Version | None = None
    """The version at the start, if any."""

    def state(self, name: Name) -> tuple[str, str]:
        """Return ``there``, ``missing`` or the damage, and the artifact's folder or address in a bucket."""
        place, manifest, damage = look_up(self.store, *name)
        return damage or ("there" if manifest else "missing"), place.address(*name)

    @property
    def versions(self) -> list[str]:
        """The versions made from all starting artifacts, with aliases: ``demo/3 (champion)``.

        Raw files may share a name by chance, so one of them is enough.
        """
        found = [set(self.graph.versions_of.get(name, ())) for name in self.start]
        combine = set.union if all(stage == RAW_STAGE for stage, _ in self.start) else set.intersection
        chosen = combine(*found) if found else set()
        return [self.version_label(label) for label in self.graph.versions if label in chosen]

    @property
    def started_from_it(self) -> list[str]:
        """The versions whose training began with the weights of the starting version."""
        weights = {each for name in self.start for each in self.graph.inputs(name) if name[0] == "register"}
        begun = {
            user for name in weights for user in self.graph.users[name] if name[0] == "average" and user[0] == "train"
        }
        found = {label for name in begun for label in self.graph.versions_of.get(name, ())}
        return [self.version_label(label) for label in self.graph.versions if label in found]

    def version_label(self, label: str) -> str:
        aliases = ", ".join(self.graph.versions[label].aliases)
        return f"{label} ({aliases})" if aliases else label

    def registered_as(self, name: Name) -> list[str]:
        """Return the versions that were registered with exactly this artifact."""
        return [self.version_label(label) for label in self.graph.versions if name in self.graph.registration(label)]

    def as_json(self) -> dict[str, Any]:
        sides = {
            "start": set(self.start),
            "made_from": self.graph.ancestors(self.start) - {*self.start},
            "used_by": self.graph.descendants(self.start) - {*self.start},
        }
        artifacts = [self._node(name, side) for side, names in sides.items() for name in sorted(names)]
        start = ["/".join(name) for name in self.start]
        versions = {"versions": self.versions, "started_from_it": self.started_from_it}
        return {"name": self.title, "start": start, **versions, "artifacts": artifacts}

    def _node(self, name: Name, side: str) -> dict[str, Any]:
        node = self.graph.nodes.get(name)
        made_by = self.graph.made_by.get(name)
        used_by = self.graph.used_by.get(name, [])
        known = {
            "side": side,
            "stage": name[0],
            "key": name[1],
            "names": [f"{each}" for each in self.graph.names.get(name, ())],
            "state": "there" if node else "missing",
            "inputs": ["/".join(each) for each in self.graph.inputs(name)],
            "users": ["/".join(each) for each in self.graph.users.get(name, ())],
            "versions": self.graph.versions_of.get(name, []),
            "made_by_run": made_by.command if made_by else "",
            "cached_in_runs": sum(each is not made_by for each in used_by),
        }
        if node:
            fields = ("item", "bytes", "seconds", "made", "machine", "commit", "facts")
            known |= {field: getattr(node, field) for field in fields}
        if side == "start":
            state, path = self.state(name)
            known |= {"state": state, "path": path}
        return known


def find_lineage(text: str, site: Site, overrides: Sequence[str] = ()) -> Lineage:
    """Find the lineage of a raw file, a key, a version, a name such as ``demo/score/test``, or a run's last artifacts.

    Raises BadConfiguration for an unknown name.
    """
    store = open_store(site)
    graph = read_graph(site)
    if names := _raw_files_or_key(text, graph):
        return Lineage(text, tuple(names), graph, store)
    if is_version(text):
        version = resolve(site.registry, recorded_name(text))
        return Lineage(f"version {version.label}", graph.artifacts_of_versions[version.label], graph, store, version)
    names = list(dict.fromkeys((name.stage, key) for name, key in find_artifacts(store, text, overrides).items()))
    if text.startswith(SYSTEM) or not parse_name(text).stage:
        used = {each for name in names for each in graph.inputs(name)}
        names = [name for name in names if name not in used]
    return Lineage(text, tuple(names), graph, store)


def folders_of(text: str, site: Site, overrides: Sequence[str] = ()) -> list[Path]:
    """Return the folders of the artifacts or the version that the text names, downloaded if they are remote.

    Raises BadConfiguration for a run without a stage, BadData for an artifact that is missing or damaged.
    """
    store = open_store(site)
    if not split_name(text)[1] or KEY.fullmatch(text):
        graph = read_graph(site)
        if names := _raw_files_or_key(text, graph):
            return [folder_of(store, "/".join(name), *name) for name in names]
    if is_version(text):
        return [local_folder(site.tracking, find_version(text, site)).parent]
    found = find_artifacts(store, text, overrides)
    if not split_name(text)[1] and not text.startswith(SYSTEM):
        stages = ", ".join(dict.fromkeys(f"{name.run}/{name.stage}" for name in found))
        raise BadConfiguration(f"{text!r} names a whole run, allowed is a stage of it: {stages}")
    return [folder_of(store, f"{name}", name.stage, key) for name, key in found.items()]


def _raw_files_or_key(text: str, graph: ArtifactGraph) -> list[Name]:
    """Find downloaded files with this path or name, else the artifact or removed input with this beginning of a key."""
    raw = (node for node in graph.nodes.values() if node.stage == RAW_STAGE)
    files = [node.name for node in raw if text in (node.item, node.item.rpartition("/")[2], *node.files)]
    match = KEY.fullmatch(text)
    if files or match is None:
        return files
    stage, key = match.group("stage", "key")
    known = sorted(graph.nodes.keys() | graph.users.keys())
    found = [name for name in known if name[1].startswith(key) and stage in (None, name[0])]
    if len(found) > 1:
        choices = ", ".join("/".join(name) for name in found[:5])
        raise BadConfiguration(f"key is {text!r}, which {len(found)} artifacts have, such as {choices}: give more")
    return found
