"""Plan a run: decide ``cached``, ``miss`` or ``waits`` for each stage without running any."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from infra.site import Site
from infra.store.store import Artifact, Store
from tasks.engine.limits import Check, Limits
from tasks.engine.lookup import Hit, Miss, MissReason, look_up
from tasks.engine.stage import Engine, Origin, StageCall
from tasks.engine.stage_code import UNCHANGED, CodeChange

StageState = Literal["cached", "completed", "failed", "miss", "waits"]


class StopPipeline(Exception):
    """Raised after the last requested stage to end the pipeline."""


@dataclass(frozen=True)
class Attempt:
    """One attempt to make forced stages: for these stages only artifacts of this attempt count."""

    stages: frozenset[str] = frozenset()
    id: str = ""
    """Stored in manifests and records of runs; "" if no stage is forced."""
    is_resumed: bool = False
    """Whether it continues an interrupted attempt."""

    @staticmethod
    def new(stages: frozenset[str]) -> "Attempt":
        return Attempt(stages, uuid.uuid4().hex if stages else "")


@dataclass(frozen=True)
class Scope:
    """Which stages may run, and which run although they are cached."""

    order: tuple[str, ...]
    until: str = ""
    attempt: Attempt = Attempt()
    counted_as: Mapping[str, str] = field(default_factory=dict)
    """Maps an item to the stage that its calls serve. This stage decides whether they may run and are forced."""

    def stage_of(self, name: str, item: str) -> str:
        """The stage that a call of stage ``name`` for ``item`` (``reverse`` or ``reverse/dev``) counts as."""
        first = item.partition("/")[0]
        # An item of download is a path. Its first folder may have any name.
        return name if name == "download" else self.counted_as.get(first, name)

    def attempt_at(self, call: StageCall) -> str:
        """The attempt whose artifact ``call`` needs; "" if the artifact of any attempt counts."""
        return self.attempt.id if self.stage_of(call.stage.name, call.item) in self.attempt.stages else ""

    def check(self, call: StageCall) -> None:
        """Raise StopPipeline for a stage after ``until``."""
        name = self.stage_of(call.stage.name, call.item)
        if self.until and self.order.index(name) > self.order.index(self.until):
            raise StopPipeline


@dataclass(frozen=True)
class StageResult:
    """The result of one stage in one run, as data; ``flows.views.stage_words`` describes it in words."""

    stage: str
    item: str
    key: str
    state: StageState
    seconds: float = 0.0
    path: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    form: dict[str, Any] = field(default_factory=dict)
    """The arguments in canonical form. The run's record keeps them so that the next plan can show what changed."""
    version: int = 0
    """The version of the stage; 0 in records that do not say it."""
    code_change: CodeChange = UNCHANGED
    """What changed since the artifact of a hit was made."""
    broken: tuple[Check, ...] = ()
    """The limits of the run that its artifact breaks."""
    miss: Miss | None = None
    origin: Origin | None = None
    """The finished artifact that the stage will continue; None if it starts from its inputs."""
    resumes: int = 0
    """The update of the checkpoint from which an interrupted training will resume."""
    waits_for: tuple[str, ...] = ()
    """The stages whose new output decides whether this one runs."""
    changes: tuple[str, ...] = ()
    """What changed since the last record of the run, for a stage that is no hit: ``decoding.beam: 2 -> 1``."""
    failure: str = ""
    """Why the stage failed."""
    failures: tuple[str, ...] = ()
    """Why each failed try of the stage in this run failed."""

    @property
    def is_refused(self) -> bool:
        """Whether its artifact breaks a limit that does not only warn."""
        return any(check.fails for check in self.broken)

    @property
    def place(self) -> str:
        """Stage and item: ``translate dev``."""
        return f"{self.stage} {self.item}".strip()

    @property
    def label(self) -> str:
        """The state, what changed, and if a limit is broken: ``cached (code changed)``."""
        kinds = self.code_change.kinds
        remarks = [f"{' and '.join(kinds)} changed"] * bool(kinds) + ["the run fails here"] * self.is_refused
        return f"{self.state} ({', '.join(remarks)})" if remarks else self.state

    @staticmethod
    def of(call: StageCall, state: StageState, hit: Hit | None = None, **fields: Any) -> "StageResult":
        """The result of a call, with the path, facts and changed code of its artifact if it has one."""
        if hit:
            artifact = hit.artifact
            fields |= {"path": f"{artifact.folder}", "facts": dict(artifact.facts), "code_change": hit.change}
        return StageResult(
            call.stage.name, call.item, call.key, state, form=call.form, version=call.stage.version, **fields
        )


class Planner(Engine):
    """Looks up each call once. A stage that ``waits`` becomes a hit if its inputs, once made, have the same content."""

    def __init__(self, store: Store, site: Site, scope: Scope, limits: Limits | None = None) -> None:
        self.store = store
        self.site = site
        self.scope = scope
        self.limits = limits or Limits()
        self.rows: list[StageResult] = []
        self.lookups: dict[str, Hit | Miss] = {}
        """The lookup of each key."""
        self._to_make: dict[str, str] = {}

    def resolve(self, call: StageCall) -> Artifact:
        self.scope.check(call)
        if call.key not in self.lookups:
            self.lookups[call.key] = look_up(self.store, self.site, call, self.scope.attempt_at(call))
        lookup = self.lookups[call.key]
        if isinstance(lookup, Hit):
            broken = tuple(self.limits.breaches(lookup.artifact, call.item))
            self.rows.append(StageResult.of(call, "cached", lookup, broken=broken))
            return lookup.artifact
        waits_for = tuple(dict.fromkeys(self._to_make[i.key] for i in call.inputs if i.key in self._to_make))
        if waits_for and lookup.reason is MissReason.INPUT_CHANGED:
            self.rows.append(StageResult.of(call, "waits", waits_for=waits_for))
        else:
            origin = call.stage.origin(self.store, self.site, call, bool(self.scope.attempt_at(call)))
            self.rows.append(StageResult.of(call, "miss", miss=lookup, origin=origin))
        self._to_make[call.key] = call.label
        return Artifact(call.stage.name, call.key, self.store.folder(call.stage.name, call.key))
