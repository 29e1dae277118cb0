"""Resolves a request to run or plan into values; each word is resolved once and passed on.

``RunRequest`` holds text, as in a command line or a deployment's parameters. ``ResolvedRun`` holds the resolved run,
site and scope. ``make_plan`` looks up every stage in the store.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import Any

from flows.reproduce import STAGES, reproduce
from flows.runner import records
from flows.runner.artifact_names import check_stage, model_manifests
from flows.runner.find_run import check_sets, find_run, warn_of_changed_files
from flows.runner.interrupted import attempt_to_resume
from flows.runner.outcome import Outcome
from flows.runner.recorded_runs import RecordedRun, arguments_of, findable, starts_to_compare
from flows.runs import Run
from flows.runs.initial_weights import InitialWeights, initial_weights_of
from flows.runs.overrides import changes_results, override, without_replaced
from flows.runs.synthetic import COUNTED_AS
from infra.errors import BadConfiguration, bad_values
from infra.extras import check_installed
from infra.site import Site, open_store
from infra.store.store import Store
from model.config import check_whole_updates
from model.config.keying import require
from tasks.engine.keys import differences
from tasks.engine.limits import USUAL_FACTS, Limits
from tasks.engine.lookup import Hit, Miss
from tasks.engine.planner import Attempt, Planner, Scope, StageResult, StopPipeline
from tasks.engine.stage import engine
from tasks.training.going_on import newest_checkpoint


@dataclass(frozen=True)
class RunRequest:
    """Names the run, the first and last stage, the forced stages, the overrides and the site."""

    run: str
    from_stage: str = ""
    until: str = ""
    force: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    site: str = "local"

    def __post_init__(self) -> None:
        object.__setattr__(self, "overrides", without_replaced(self.overrides))

    def resolve(self) -> "ResolvedRun":
        """Resolve the request. Raises BadConfiguration for an unknown value."""
        for name in (self.from_stage, self.until, *self.force):
            check_stage(name)
        for name in filter(None, (self.from_stage, *self.force)):
            if self.until and STAGES.index(name) > STAGES.index(self.until):
                raise BadConfiguration(f"stage {name!r} is to run, but comes after the last one, {self.until!r}")
        after = STAGES[STAGES.index(self.from_stage) :] if self.from_stage else ()
        attempt = Attempt.new(frozenset((*self.force, *after)))
        scope = Scope(STAGES, self.until, attempt, COUNTED_AS)
        site = Site.named(self.site)
        found = replace(self, run=findable(self.run, site.root))
        run = override(find_run(found.run), self.overrides)
        check_sets(run)
        warn_of_changed_files(run)
        return ResolvedRun(found, run, site, scope)


@dataclass(frozen=True)
class ResolvedRun:
    """A request and its resolved values."""

    request: RunRequest
    run: Run
    site: Site
    scope: Scope
    title: str = ""
    """The name of its run in MLflow; empty for the run's own."""
    parent: str = ""
    """The parent run in MLflow, such as a sweep; "" for none."""
    group: str = ""
    """Its group in the record: ``sweep demo-3f2a91``, ``paper-demo-scale8``; "" for none."""
    experiment: str = ""
    """The experiment in MLflow; "": the run's name."""

    @property
    def is_modified(self) -> bool:
        """Whether it has overrides that change results; then it moves no alias."""
        return changes_results(self.request.overrides)


@dataclass(frozen=True)
class RunPlan:
    """One lookup per stage of a run. It is made once per start of the run and passed on."""

    resolved: ResolvedRun
    started: datetime
    """The time that names the record of this start."""
    store: Store
    scope: Scope
    """Its attempt is a new one, or that of ``interrupted``."""
    initial: InitialWeights | None
    interrupted: RecordedRun | None
    """The last run of the same request, if it did not finish."""
    outcome: Outcome
    """States are cached, miss and waits."""
    lookups: Mapping[str, Hit | Miss]
    """By key."""


def make_plan(resolved: ResolvedRun) -> RunPlan:
    """Plan what a run would do now. Reads the store and the records of the run; runs nothing.

    Raises BadConfiguration for settings or limits that the run cannot have, Fault for a store that does not answer.
    """
    site = resolved.site
    store = open_store(site)
    name = resolved.run.name
    records.receive_records(store, name)
    interrupted = attempt_to_resume(site, name, vars(resolved.request))
    scope = resolved.scope
    if scope.attempt.stages and interrupted and interrupted.forced_attempt:
        resumed = Attempt(scope.attempt.stages, interrupted.forced_attempt, is_resumed=True)
        scope = replace(scope, attempt=resumed)
    initial = beginning_of(resolved.run, site, store)
    limits = Limits.parse(resolved.run.expect)
    planner = Planner(store, site, scope, limits)
    with engine(planner), suppress(StopPipeline):
        reproduce(resolved.run, resolved.is_modified, initial)
    rows = planner.rows
    if not scope.until:
        _check_limits(limits, rows, store)
    if any(row.stage == "train" and row.state != "cached" for row in rows):
        _check_training(resolved.run, site)
    if any(row.state != "cached" for row in rows):  # else neither extras nor records are needed
        _check_extras(site)
        rows = [_resuming(row, store, scope.attempt) for row in _with_changes(rows, store, resolved, initial)]
    started = records.start_time(site.root, name)
    return RunPlan(resolved, started, store, scope, initial, interrupted, Outcome(name, rows), planner.lookups)


def beginning_of(run: Run, site: Site, store: Store) -> InitialWeights | None:
    """Find what ``training.start`` or ``training.continue_from`` names; None for random initial weights.

    Raises BadConfiguration for a name that is unknown, a model of another shape, or a damaged training.
    """
    name = run.training.continue_from
    if not name:
        return initial_weights_of(run, site, store)
    found = model_manifests(store, name, "train")
    manifest = found.get("") or next(iter(found.values()))
    if damage := store.damage(manifest):
        raise BadConfiguration(f"training.continue is {name!r}, but that training is damaged: {damage}")
    return InitialWeights(name, continued=(store.artifact(manifest),))


def _check_extras(site: Site) -> None:
    """Raise BadConfiguration if an optional library that the site needs for work is missing.

    ``learn_bpe`` checks its own libraries. Without this check, the stage would fail only after servers and other
    stages.
    """
    if site.launcher == "kubernetes":
        check_installed("kubernetes", "REPRO_LAUNCHER=kubernetes")
    if site.dask:
        check_installed("distributed", "REPRO_DASK")


def _check_training(run: Run, site: Site) -> None:
    """Reject site settings that the training job would refuse, with the same message."""
    training = run.training
    on_cpu = site.device == "cpu"
    most = site.micro_batch_tokens
    with bad_values():
        if training.numerics == "strict":  # it ignores the other settings
            require(site.device != "cuda", "site.device", site.device, "cpu where numerics is strict")
            require(site.ranks in (1, 2, 4), "site.ranks", site.ranks, "1, 2 or 4 where training.numerics is strict")
        else:
            check_whole_updates(training, site.compile, on_cpu=on_cpu, ranks=site.ranks, micro_batch_tokens=most)


def _check_limits(limits: Limits, rows: Sequence[StageResult], store: Store) -> None:
    """Raise BadConfiguration for a limit on an unknown stage, item or fact: no artifact here has this fact."""
    items: dict[str, list[str]] = {}
    for row in rows:
        items.setdefault(row.stage, []).append(row.item)
    for limit in limits.limits:
        if limit.item not in items.get(limit.stage, ()):
            known = [f"{limit.stage} {item}".strip() for item in items.get(limit.stage, ())] or items
            raise BadConfiguration(f"expect has a limit on {limit.label!r}, allowed is {', '.join(known)}")
        if limit.fact not in USUAL_FACTS:
            names = {name for made in store.list(limit.stage) for name in made.facts}
            if names and limit.fact not in names:
                raise BadConfiguration(f"expect limits {limit.place!r}, allowed of {limit.stage} is {', '.join(names)}")


def plan(request: RunRequest) -> Outcome:
    """Plan what a run would do. Runs nothing."""
    return make_plan(request.resolve()).outcome


def _resuming(row: StageResult, store: Store, attempt: Attempt) -> StageResult:
    """Return the row; for an interrupted training it says from which checkpoint it will resume."""
    if row.stage != "train" or row.state != "miss" or (row.stage in attempt.stages and not attempt.is_resumed):
        return row
    done = max(map(newest_checkpoint, store.unfinished_folders(row.stage, row.key)), default=0)
    return replace(row, resumes=done)


def _with_changes(
    rows: list[StageResult], store: Store, resolved: ResolvedRun, initial: InitialWeights | None
) -> list[StageResult]:
    """Return the rows; a row that is not cached says what changed since the first of ``starts_to_compare`` with it."""
    keys: dict[tuple[str, str], str] = {}
    before: dict[tuple[str, str], Any] = {}
    starts = starts_to_compare(store.root, resolved.run.name, resolved.request.overrides)
    for earlier in islice(starts, 20):  # reading more would take long
        keys = {(stage.stage, stage.item): stage.key for stage in earlier.stages} | keys
        before = arguments_of(earlier) | before
        if all((row.stage, row.item) in before for row in rows):
            break

    def explained(row: StageResult) -> StageResult:
        place = (row.stage, row.item)
        changes = differences(row.form, before.get(place, row.form))
        manifest = store.find(row.stage, keys[place]) if keys.get(place) else None
        if initial and row.stage == "train":
            changes = [f"begins with {initial.version}", *changes]
        if manifest and manifest.version != row.version:
            changes = [f"stage version {manifest.version} -> {row.version}", *changes]
        return replace(row, changes=tuple(changes))

    return [row if row.state == "cached" else explained(row) for row in rows]
