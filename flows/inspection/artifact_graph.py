"""Builds a graph of a root's artifacts, versions and recorded runs: what was made from what, by which run.

One pass over the store reads every manifest once. The graph keeps only displayed fields of a manifest, since a root may
have tens of thousands; ``Store.find`` returns the whole manifest.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any, TypeVar

from flows.runner.artifact_names import ArtifactName
from flows.runner.named_runs import NamedRun, name_run
from flows.runner.recorded_runs import RecordedRun, read_history
from infra.guards.address_secrets import public_facts
from infra.site import Site, open_store
from infra.store.manifest import Manifest, bytes_of, seconds_of
from infra.store.store import Store
from infra.tracking.model_version import Version
from infra.tracking.registry import versions
from tasks.registration.lineage import keys_of

Name = tuple[str, str]
"""Stage and key."""
Key = TypeVar("Key")
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class ArtifactNode:
    """An artifact without its arguments and the checksums of its files."""

    stage: str
    key: str
    item: str
    bytes: int
    seconds: float
    """Time of its stage."""
    made: str
    """When it was sealed, in ISO 8601; "" if unknown."""
    machine: str
    commit: str
    inputs: tuple[Name, ...]
    facts: Mapping[str, Any]
    files: tuple[str, ...]

    @property
    def name(self) -> Name:
        return self.stage, self.key

    @staticmethod
    def of(manifest: Manifest) -> "ArtifactNode":
        at, machine, commit = (f"{manifest.made.get(field, '')}" for field in ("at", "machine", "commit"))
        return ArtifactNode(
            stage=manifest.stage,
            key=manifest.key,
            item=manifest.item,
            bytes=bytes_of(manifest),
            seconds=seconds_of(manifest),
            made=at,
            machine=machine,
            commit=commit,
            inputs=tuple((stage, key) for stage, _, key in (each.partition("/") for each in manifest.inputs)),
            facts=public_facts(manifest.facts),
            files=tuple(manifest.files),
        )


class ArtifactGraph:
    """Artifacts, registered versions and recorded runs of a root. A removed input has no node."""

    def __init__(
        self,
        nodes: Mapping[Name, ArtifactNode],
        registered: Iterable[Version] = (),
        read_runs: Callable[[], Sequence[RecordedRun]] = tuple,
    ) -> None:
        self.nodes = nodes
        self.versions = {version.label: version for version in registered}
        self._read_runs = read_runs

    @cached_property
    def runs(self) -> Sequence[RecordedRun]:
        """The recorded runs, the newest first; read at the first access."""
        return self._read_runs()

    @cached_property
    def named(self) -> Mapping[str, NamedRun]:
        """The records that the name of each run means."""
        by_run = groupby(sorted(self.runs, key=lambda each: each.run), lambda each: each.run)  # stable: newest first
        return {run: name_run(records, run) for run, records in by_run}

    @cached_property
    def names(self) -> Mapping[Name, list[ArtifactName]]:
        """Readable names. ``demo/clean`` is the newest artifact of that stage; older artifacts have no name."""
        return grouped(
            ((stage, key), ArtifactName(run, stage, item))
            for run, named in self.named.items()
            for (stage, item), key in named.artifacts.items()
        )

    @cached_property
    def used_by(self) -> Mapping[Name, list[RecordedRun]]:
        """The runs that made or reused an artifact, the newest first."""
        rows = ((each, used) for each in self.runs for used in each.stages)
        return grouped(((used.stage, used.key), each) for each, used in rows if used.has_artifact)

    @cached_property
    def made_by(self) -> Mapping[Name, RecordedRun]:
        """The newest run that made an artifact."""
        starts = reversed(self.runs)
        return {(used.stage, used.key): each for each in starts for used in each.stages if used.was_made}

    def label(self, name: Name) -> str:
        """Return the readable name of an artifact, else ``stage/key``."""
        return f"{self.names[name][0]}" if name in self.names else "/".join(name)

    @cached_property
    def users(self) -> Mapping[Name, list[Name]]:
        """The artifacts made from each artifact, also from a removed one."""
        return grouped((source, node.name) for node in self.nodes.values() for source in node.inputs)

    def inputs(self, name: Name) -> tuple[Name, ...]:
        """Return the inputs of an artifact; empty for a removed one."""
        return self.nodes[name].inputs if name in self.nodes else ()

    def ancestors(self, names: Iterable[Name]) -> set[Name]:
        """Return the artifacts and all direct and indirect inputs, removed ones too."""
        return reached(names, self.inputs)

    def descendants(self, names: Iterable[Name]) -> set[Name]:
        """Return the artifacts and everything made from them."""
        return reached(names, lambda name: self.users.get(name, ()))

    @cached_property
    def artifacts_of_versions(self) -> Mapping[str, tuple[Name, ...]]:
        """The artifacts of each version: its ``register`` artifact, else those that its tags name."""
        registered = [node for node in self.nodes.values() if node.stage == "register"]
        by_registration = grouped((f"{n.facts.get('name')}/{n.facts.get('version')}", n.name) for n in registered)
        found = {}
        for label, version in self.versions.items():
            weights = keys_of(version.tags).get("average", "")  # another registry may have the same label
            own = [n for n in by_registration.get(label, ()) if not weights or ("average", weights) in self.inputs(n)]
            found[label] = tuple(own) or artifacts_of_tags(version)
        return found

    def registration(self, label: str) -> list[Name]:
        """Return the existing ``register`` artifacts of a version, usually one."""
        return [name for name in self.artifacts_of_versions.get(label, ()) if name[0] == "register"]

    @cached_property
    def versions_of(self) -> Mapping[Name, list[str]]:
        """The versions made from each artifact, such as ``demo/3``."""
        registered = self.artifacts_of_versions.items()
        return grouped((name, label) for label, names in registered for name in self.ancestors(names))


def read_graph(site: Site) -> ArtifactGraph:
    """Read all artifacts and versions of a root. A bucket needs one listing, and one request per new manifest.

    Ignores edited or unreadable manifests, which ``repro verify`` names. Raises NetworkFault.
    """
    store = open_store(site)
    return ArtifactGraph(read_nodes(sealed_everywhere(store)), versions(site.registry), lambda: read_history(store))


def read_nodes(manifests: Iterable[Manifest]) -> dict[Name, ArtifactNode]:
    return {node.name: node for node in map(ArtifactNode.of, manifests)}


def sealed_everywhere(store: Store) -> Iterator[Manifest]:
    """Yield every artifact of a store; from a bucket's cache, only ``register``, which concerns this machine alone."""
    known = set()
    for manifest in store.list():
        known.add((manifest.stage, manifest.key))
        yield manifest
    for manifest in store.local().list("register"):
        if ("register", manifest.key) not in known:
            yield manifest


def artifacts_of_tags(version: Version) -> tuple[Name, ...]:
    """Return the artifacts that a version's tags name: ``key.average``, ``key.score.test``."""
    return tuple((name.partition(".")[0], key) for name, key in keys_of(version.tags).items())


def grouped(pairs: Iterable[tuple[Key, Value]]) -> dict[Key, list[Value]]:
    """Collect the values of each key in their order."""
    found: dict[Key, list[Value]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


def reached(names: Iterable[Name], step: Callable[[Name], Iterable[Name]], known: Container[Name] = ()) -> set[Name]:
    """Return the names and everything that ``step`` reaches from them, without ``known`` names and beyond them."""
    found: set[Name] = set()
    waiting = list(names)
    while waiting:
        if (name := waiting.pop()) not in found and name not in known:
            found.add(name)
            waiting.extend(step(name))
    return found
