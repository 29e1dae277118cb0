"""Hit or miss, and why: ``look_up`` decides it for one call, ``Planner`` for a whole run without making anything.

The manifest decides. A stage is a hit when its manifest is there, each input has the content it had when the stage
ran, every file has its checksum, and what the stage did outside its folder still stands.
"""

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from infra.site import Site
from infra.store.local import Artifact, Manifest, Store
from tasks.engine.stage import StageCall

StageState = Literal["cached", "completed", "failed", "hit", "miss", "waits"]


class StopPipeline(Exception):
    """The last stage asked for is done."""


@dataclass(frozen=True)
class Scope:
    """Which stages of the story may run, and which must."""

    order: tuple[str, ...]
    until: str = ""
    forced: frozenset[str] = frozenset()
    attempt: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Which attempt the forced stages belong to: a new one, unless one that was cut off is to be gone on with."""

    def attempt_at(self, call: StageCall) -> str:
        """The attempt that must make ``call``; "" where an artifact by anyone will do."""
        return self.attempt if call.stage.name in self.forced else ""

    def check(self, call: StageCall) -> None:
        """Raise Enough for a stage behind ``until``."""
        if self.until and self.order.index(call.stage.name) > self.order.index(self.until):
            raise StopPipeline


@dataclass(frozen=True)
class CacheLookup:
    """Whether a call is a hit, and in a few words why not."""

    hit: bool
    why: str = ""
    manifest: Manifest | None = None
    damaged: bool = False
    forced: bool = False


@dataclass(frozen=True)
class StageResult:
    """What became of one stage in one run."""

    stage: str
    item: str
    key: str
    state: StageState
    seconds: float = 0.0
    path: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    why: str = ""
    form: dict[str, Any] = field(default_factory=dict)
    """The arguments in canonical form, kept in the run's record so that the next plan can say what changed."""


def look_up(store: Store, site: Site, call: StageCall, attempt: str = "") -> CacheLookup:
    """Is the artifact of ``call`` there, whole, made from what its inputs hold now, and by ``attempt`` if one must?"""
    verdict = _judge(store, site, call)
    if attempt and not (verdict.manifest and verdict.manifest.made.get("attempt") == attempt):
        return replace(verdict, hit=False, why="forced", forced=True)
    return verdict


def _judge(store: Store, site: Site, call: StageCall) -> CacheLookup:
    store = store_for(store, site, call)
    manifest = store.manifest(call.stage.name, call.key)
    if manifest is None:
        return CacheLookup(False, "not made yet")
    for artifact in call.inputs:
        if manifest.inputs.get(f"{artifact.stage}/{artifact.key}") != artifact.content:
            return CacheLookup(False, f"{artifact.stage} has other content than when this was made", manifest)
    if damage := store.damage(manifest):
        return CacheLookup(False, damage, manifest, damaged=True)
    if not call.stage.still_valid(store.artifact(manifest), site):
        return CacheLookup(False, "what it registered is gone", manifest)
    return CacheLookup(True, "", manifest)


def store_for(store: Store, site: Site, call: StageCall) -> Store:
    """Where the artifact of ``call`` belongs: what it did at an MLflow of this machine is nothing to the others."""
    return store.local() if call.stage.has_side_effects and not site.shares_tracking else store


class Planner:
    """Looks, makes nothing: rows say hit, miss, or waits (a hit unless what must be made first comes out otherwise)."""

    def __init__(self, store: Store, site: Site, scope: Scope) -> None:
        self.store, self.site, self.scope = store, site, scope
        self.rows: list[StageResult] = []
        self._to_make: dict[str, str] = {}

    def resolve_all(self, calls: Sequence[StageCall], at_once: int) -> list[Artifact]:  # noqa: ARG002
        return [self.resolve(call) for call in calls]

    def resolve(self, call: StageCall) -> Artifact:
        self.scope.check(call)
        waits_for = [self._to_make[a.key] for a in call.inputs if a.key in self._to_make]
        lookup = look_up(self.store, self.site, call, self.scope.attempt_at(call))
        state: StageState = "hit" if lookup.hit else "miss"
        why = lookup.why
        if waits_for and lookup.manifest and not lookup.forced:
            state, why = "waits", f"runs if {_joined(waits_for)} comes out otherwise"
        elif lookup.hit:
            assert lookup.manifest
            artifact = store_for(self.store, self.site, call).artifact(lookup.manifest)
            self.rows.append(row_of(call, "hit", artifact))
            return artifact
        self._to_make[call.key] = call.label
        self.rows.append(row_of(call, state, Artifact(call.stage.name, call.key, Path()), why=why))
        return Artifact(call.stage.name, call.key, self.store.folder(call.stage.name, call.key))


def row_of(call: StageCall, state: StageState, artifact: Artifact, why: str = "") -> StageResult:
    path = str(artifact.folder) if state in ("cached", "completed", "hit") else ""
    return StageResult(call.stage.name, call.item, call.key, state, 0.0, path, dict(artifact.facts), why, call.form)


def _joined(labels: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(labels))
