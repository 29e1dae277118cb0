"""Hit or miss, and why: ``judge`` decides it for one call, ``Planning`` for a whole run without making anything.

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
from tasks.engine.stage import Call

State = Literal["cached", "completed", "failed", "hit", "miss", "waits"]


class Enough(Exception):
    """The last stage asked for is done."""


@dataclass(frozen=True)
class Scope:
    """Which stages of the story may run, and which must."""

    order: tuple[str, ...]
    until: str = ""
    forced: frozenset[str] = frozenset()
    attempt: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Which attempt the forced stages belong to: a new one, unless one that was cut off is to be gone on with."""

    def attempt_at(self, call: Call) -> str:
        """The attempt that must make ``call``; "" where an artifact by anyone will do."""
        return self.attempt if call.stage.name in self.forced else ""

    def check(self, call: Call) -> None:
        """Raise Enough for a stage behind ``until``."""
        if self.until and self.order.index(call.stage.name) > self.order.index(self.until):
            raise Enough


@dataclass(frozen=True)
class Verdict:
    """Whether a call is a hit, and in a few words why not."""

    hit: bool
    why: str = ""
    manifest: Manifest | None = None
    damaged: bool = False
    forced: bool = False


@dataclass(frozen=True)
class Row:
    """What became of one stage in one run."""

    stage: str
    item: str
    key: str
    state: State
    seconds: float = 0.0
    path: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    why: str = ""
    form: dict[str, Any] = field(default_factory=dict)
    """The arguments in canonical form, kept in the run's record so that the next plan can say what changed."""


def judge(store: Store, site: Site, call: Call, attempt: str = "") -> Verdict:
    """Is the artifact of ``call`` there, whole, made from what its inputs hold now, and by ``attempt`` if one must?"""
    verdict = _judge(store, site, call)
    if attempt and not (verdict.manifest and verdict.manifest.made.get("attempt") == attempt):
        return replace(verdict, hit=False, why="forced", forced=True)
    return verdict


def _judge(store: Store, site: Site, call: Call) -> Verdict:
    store = placed(store, site, call)
    manifest = store.manifest(call.stage.name, call.key)
    if manifest is None:
        return Verdict(False, "not made yet")
    for artifact in call.inputs:
        if manifest.inputs.get(f"{artifact.stage}/{artifact.key}") != artifact.content:
            return Verdict(False, f"{artifact.stage} has other content than when this was made", manifest)
    if damage := store.damage(manifest):
        return Verdict(False, damage, manifest, damaged=True)
    if not call.stage.standing(store.artifact(manifest), site):
        return Verdict(False, "what it registered is gone", manifest)
    return Verdict(True, "", manifest)


def placed(store: Store, site: Site, call: Call) -> Store:
    """Where the artifact of ``call`` belongs: what it did at an MLflow of this machine is nothing to the others."""
    return store.local() if call.stage.reaches_out and not site.shares_tracking else store


class Planning:
    """Looks, makes nothing: rows say hit, miss, or waits (a hit unless what must be made first comes out otherwise)."""

    def __init__(self, store: Store, site: Site, scope: Scope) -> None:
        self.store, self.site, self.scope = store, site, scope
        self.rows: list[Row] = []
        self._unmade: dict[str, str] = {}

    def resolve_all(self, calls: Sequence[Call], at_once: int) -> list[Artifact]:  # noqa: ARG002
        return [self.resolve(call) for call in calls]

    def resolve(self, call: Call) -> Artifact:
        self.scope.check(call)
        waits_for = [self._unmade[a.key] for a in call.inputs if a.key in self._unmade]
        verdict = judge(self.store, self.site, call, self.scope.attempt_at(call))
        state: State = "hit" if verdict.hit else "miss"
        why = verdict.why
        if waits_for and verdict.manifest and not verdict.forced:
            state, why = "waits", f"runs if {_list(waits_for)} comes out otherwise"
        elif verdict.hit:
            assert verdict.manifest
            artifact = placed(self.store, self.site, call).artifact(verdict.manifest)
            self.rows.append(row_of(call, "hit", artifact))
            return artifact
        self._unmade[call.key] = call.label
        self.rows.append(row_of(call, state, Artifact(call.stage.name, call.key, Path()), why=why))
        return Artifact(call.stage.name, call.key, self.store.folder(call.stage.name, call.key))


def row_of(call: Call, state: State, artifact: Artifact, why: str = "") -> Row:
    path = str(artifact.folder) if state in ("cached", "completed", "hit") else ""
    return Row(call.stage.name, call.item, call.key, state, 0.0, path, dict(artifact.facts), why, call.form)


def _list(labels: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(labels))
