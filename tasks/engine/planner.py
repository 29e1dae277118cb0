"""Plan a run: decide ``hit``, ``miss`` or ``waits`` for each stage without running any."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from infra.site import Site
from infra.store.store import Artifact, Store
from tasks.engine.limits import NO_LIMITS, Limits
from tasks.engine.lookup import CacheLookup, look_up
from tasks.engine.stage import StageCall

StageState = Literal["cached", "completed", "failed", "hit", "miss", "pruned", "waits"]


class StopPipeline(Exception):
    """Raised after the last requested stage to end the pipeline."""


@dataclass(frozen=True)
class Scope:
    """Which stages may run, and which are forced to run."""

    order: tuple[str, ...]
    until: str = ""
    forced: frozenset[str] = frozenset()
    attempt: str = field(default_factory=lambda: uuid.uuid4().hex)
    """The attempt that the forced stages belong to: a new one, or one that was interrupted and is resumed."""
    counted_as: Mapping[str, str] = field(default_factory=dict)
    """Items whose calls serve another stage, with that stage: it decides whether they may run and are forced."""

    def stage_of(self, name: str, item: str) -> str:
        """The stage that a call of stage ``name`` for ``item`` (``reverse`` or ``reverse/dev``) counts as."""
        return self.counted_as.get(item.partition("/")[0], name)

    def attempt_at(self, call: StageCall) -> str:
        """The attempt whose artifact ``call`` needs; "" if the artifact of any attempt counts."""
        return self.attempt if self.stage_of(call.stage.name, call.item) in self.forced else ""

    def check(self, call: StageCall) -> None:
        """Raise StopPipeline for a stage after ``until``."""
        name = self.stage_of(call.stage.name, call.item)
        if self.until and self.order.index(name) > self.order.index(self.until):
            raise StopPipeline


@dataclass(frozen=True)
class StageResult:
    """The result of one stage in one run."""

    stage: str
    item: str
    key: str
    state: StageState
    seconds: float = 0.0
    path: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    why: str = ""
    breach: str = ""
    """The limits of the run that its artifact breaks and that do not only warn."""
    form: dict[str, Any] = field(default_factory=dict)
    """The arguments in canonical form. The run's record keeps them so that the next plan can show what changed."""
    failures: tuple[str, ...] = ()
    """Why each failed try of the stage in this run failed."""
    version: int = 0
    """The version of the stage; 0 in records that do not say it."""

    @property
    def label(self) -> str:
        """The state for people: ``cached (code changed)``, ``hit (adopted)``."""
        if self.path and self.why.startswith("adopted from "):
            return f"{self.state} (adopted)"
        changes = [what for what in ("code", "libraries") if self.path and f"{what} changed" in self.why]
        return f"{self.state} ({' and '.join(changes)} changed)" if changes else self.state

    @staticmethod
    def of(
        call: StageCall, state: StageState, artifact: Artifact, seconds: float = 0.0, why: str = ""
    ) -> "StageResult":
        """The result of a call with an artifact; ``why`` is a hit's change of code or libraries."""
        name, path, facts = call.stage.name, str(artifact.folder), dict(artifact.facts)
        return StageResult(
            name, call.item, call.key, state, seconds, path, facts, why, form=call.form, version=call.stage.version
        )

    @staticmethod
    def without_artifact(call: StageCall, state: StageState, why: str, seconds: float = 0.0) -> "StageResult":
        """The result of a call without an artifact, and the reason."""
        name, version = call.stage.name, call.stage.version
        return StageResult(name, call.item, call.key, state, seconds, why=why, form=call.form, version=version)


class KeyList:
    """An engine that lists the keys of a run's stages, which say what the run computes. Looks at no artifact."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.keys: list[str] = []

    def resolve_all(self, calls: Sequence[StageCall], at_once: int) -> list[Artifact]:  # noqa: ARG002
        return [self.resolve(call) for call in calls]

    def resolve(self, call: StageCall) -> Artifact:
        self.scope.check(call)
        self.keys.append(call.key)
        return Artifact(call.stage.name, call.key, Path())


class Planner:
    """Looks up each call once. ``waits`` turns into a hit unless an input that must be made first changes."""

    def __init__(self, store: Store, site: Site, scope: Scope, limits: Limits = NO_LIMITS) -> None:
        self.store, self.site, self.scope, self.limits = store, site, scope, limits
        self.rows: list[StageResult] = []
        self.lookups: dict[str, CacheLookup] = {}
        """The lookup of each key."""
        self._to_make: dict[str, str] = {}

    def resolve_all(self, calls: Sequence[StageCall], at_once: int) -> list[Artifact]:  # noqa: ARG002
        return [self.resolve(call) for call in calls]

    def resolve(self, call: StageCall) -> Artifact:
        self.scope.check(call)
        if call.key not in self.lookups:
            self.lookups[call.key] = look_up(self.store, self.site, call, self.scope.attempt_at(call))
        lookup = self.lookups[call.key]
        if lookup.artifact:
            broken = self.limits.breaches(self.store, lookup.artifact, call.item)
            why = "; ".join(filter(None, [lookup.note, *map(str, broken)]))
            row = StageResult.of(call, "hit", lookup.artifact, why=why)
            self.rows.append(replace(row, breach="; ".join(str(check) for check in broken if check.fails)))
            return lookup.artifact
        waits_for = dict.fromkeys(self._to_make[i.key] for i in call.inputs if i.key in self._to_make)
        if waits_for and lookup.manifest and not lookup.must_run:
            row = StageResult.without_artifact(call, "waits", f"runs if the output of {', '.join(waits_for)} changes")
        else:
            row = StageResult.without_artifact(call, "miss", lookup.why)
        self._to_make[call.key] = call.label
        self.rows.append(row)
        return Artifact(call.stage.name, call.key, self.store.folder(call.stage.name, call.key))
