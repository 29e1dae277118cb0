"""A request to run or plan, and the values that its words mean: each is resolved once and passed on.

``RunRequest`` holds words that travel (a command line, a deployment's parameters). ``ResolvedRun`` holds the run, site
and scope behind them. ``ResolvedRun.plan`` reads the store when it is first needed.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Any

from flows.reproduce import COUNTED_AS, STAGES, reproduce
from flows.runner import records
from flows.runner.find_run import find_run, foreign_sets
from flows.runner.interrupted import attempt_to_resume
from flows.runner.outcome import Outcome
from flows.runner.recorded_runs import RecordedRun, last_arguments, read_runs
from flows.runs import Run
from flows.runs.initial_weights import InitialWeights, initial_weights_of
from flows.runs.overrides import changes_results, override, without_replaced
from flows.runs.values import did_you_mean
from infra.errors import BadConfiguration
from infra.site import Site, open_store
from infra.store.store import Store
from model.config.job_checks import check_whole_updates
from tasks.engine.keys import differences
from tasks.engine.limits import Limits
from tasks.engine.lookup import CacheLookup
from tasks.engine.planner import Planner, Scope, StageResult, StopPipeline
from tasks.engine.progress import MetricsWatch, ignore_metrics
from tasks.engine.stage import Engine, engine


@dataclass(frozen=True)
class RunRequest:
    """Which run, from and until which stage, which stages in any case, with which overrides, at which site."""

    run: str
    from_stage: str = ""
    until: str = ""
    force: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    site: str = "local"

    def __post_init__(self) -> None:
        object.__setattr__(self, "overrides", without_replaced(self.overrides))

    def resolve(self, *, again: bool = False) -> "ResolvedRun":
        """The values behind the words; raises BadConfiguration for an unknown one.

        ``again``: the caller made the same request before, as a flow run that is retried. Its forced stages are resumed
        even if they failed; otherwise only if they were interrupted.
        """
        for name in filter(None, (self.from_stage, self.until, *self.force)):
            if name not in STAGES:
                hint = did_you_mean(name, STAGES) or ","
                raise BadConfiguration(f"unknown stage {name!r}{hint} known are: {', '.join(STAGES)}")
        for name in filter(None, (self.from_stage, *self.force)):
            if self.until and STAGES.index(name) > STAGES.index(self.until):
                raise BadConfiguration(
                    f"stage {name!r} is to run, but comes after the last one asked for, {self.until!r}"
                )
        after = STAGES[STAGES.index(self.from_stage) :] if self.from_stage else ()
        scope = Scope(STAGES, self.until, frozenset((*self.force, *after)), counted_as=COUNTED_AS)
        run = override(find_run(self.run), self.overrides)
        return ResolvedRun(self, run, Site.named(self.site), scope, again, foreign_sets(run))


@dataclass(frozen=True)
class RunPlan:
    """What the store has of a run, looked up once for each stage."""

    store: Store
    scope: Scope
    """With the attempt of its forced stages: a new one, or that of ``interrupted``."""
    initial: InitialWeights | None
    interrupted: RecordedRun | None
    """The last run of the same request, if it was cut off."""
    outcome: Outcome
    """States are hit, miss and waits."""
    lookups: Mapping[str, CacheLookup]
    """By key."""

    @property
    def attempt(self) -> str:
        """The attempt of the forced stages, "" where none is forced."""
        return self.scope.attempt if self.scope.forced else ""

    @property
    def resumed(self) -> bool:
        """Whether the forced stages belong to an attempt that was cut off."""
        return self.interrupted is not None and self.interrupted.forced_attempt == self.scope.attempt


@dataclass(frozen=True)
class ResolvedRun:
    """A request and the values behind its words."""

    request: RunRequest
    run: Run
    site: Site
    scope: Scope
    again: bool = False
    remark: str = ""
    """A sentence that says which sets belong to another corpus; "" if none does."""
    title: str = ""
    """The name of its run in MLflow; empty for the run's own."""
    parent: str = ""
    """The run in MLflow that groups it with others, as a sweep does; "" for none."""
    group: str = ""
    """What it is a part of, for its record: ``sweep demo-3f2a91``, ``paper-demo-scale8``; "" for nothing."""
    experiment: str = ""
    """The experiment in MLflow; "" for that of the run's name."""
    watch: MetricsWatch = ignore_metrics
    """Sees the metrics of its jobs, and may end a job by raising a Fault."""

    @cached_property
    def started(self) -> datetime:
        """The time that names its record, taken on first access and then kept: each start of a run is one record."""
        return records.start_time(self.site.root, self.run.name)

    @cached_property
    def plan(self) -> RunPlan:
        """What a run would do, computed on first access and then kept; resolve the request again for a newer plan."""
        store, name = open_store(self.site), self.run.name
        records.receive_records(store, name, newest=1)
        interrupted = attempt_to_resume(self.site, name, vars(self.request), again=self.again)
        resumes = self.scope.forced and interrupted and interrupted.forced_attempt
        scope = replace(self.scope, attempt=interrupted.forced_attempt) if interrupted and resumes else self.scope
        initial = initial_weights_of(self.run, self.site, store)
        limits = Limits.parse(self.run.expect)
        planner = Planner(store, self.site, scope, limits)
        self.walk(planner, initial)
        if not scope.until:
            _check_places(limits, planner.rows)
        if any(row.stage == "train" and row.state != "hit" for row in planner.rows):
            _check_training(self.run, self.site)
        rows = planner.rows
        if any(row.state != "hit" for row in rows):  # else the records are not needed
            newest = next(read_runs(self.site.root, name), None)
            keys = {(stage.stage, stage.item): stage.key for stage in newest.stages} if newest else {}
            rows = _with_versions(rows, store, keys)
            rows = _with_changes(rows, last_arguments(self.site.root, name), initial)
        return RunPlan(store, scope, initial, interrupted, Outcome(name, rows), planner.lookups)

    def walk(self, present: Engine, initial: InitialWeights | None) -> None:
        """Call the stages of the run, as far as its scope goes, under an engine."""
        with engine(present), _until_stopped():
            reproduce(self.run, changes_results(self.request.overrides), initial)


def _check_training(run: Run, site: Site) -> None:
    """Raise BadConfiguration, in the words of the training itself, for settings of the site that it would refuse."""
    training, on_cpu, most = run.training, site.device == "cpu", site.micro_batch_tokens
    if training.numerics == "strict":  # it has settings of its own
        return
    try:
        check_whole_updates(training, site.compile, on_cpu=on_cpu, ranks=site.ranks, micro_batch_tokens=most)
    except ValueError as error:
        raise BadConfiguration(str(error)) from error


def _check_places(limits: Limits, rows: Sequence[StageResult]) -> None:
    """Raise BadConfiguration for a limit on a stage or an item that the run does not have."""
    items: dict[str, list[str]] = {}
    for row in rows:
        items.setdefault(row.stage, []).append(row.item)
    for limit in limits.limits:
        if limit.item not in items.get(limit.stage, ()):
            known = [f"{limit.stage} {item}".strip() for item in items.get(limit.stage, ())] or items
            raise BadConfiguration(f"expect has a limit on {limit.label!r}, allowed is {', '.join(known)}")


def plan(request: RunRequest) -> Outcome:
    """What a run would do, by looking alone; ``why`` also says what changed since the last run of that name."""
    return request.resolve().plan.outcome


@contextmanager
def _until_stopped() -> Iterator[None]:
    try:
        yield
    except StopPipeline:
        return


def _with_changes(
    rows: list[StageResult], before: Mapping[tuple[str, str], Any], initial: InitialWeights | None
) -> list[StageResult]:
    """The rows; those that are no hit say what changed since ``before``, the arguments of the last run."""

    def explain(row: StageResult) -> StageResult:
        begins = [f"begins with {initial.version}"] if initial and row.stage == "train" else []
        changed = differences(row.form, before.get((row.stage, row.item), row.form))
        return replace(row, why="; ".join([row.why, *begins, *changed]))

    return [row if row.state == "hit" else explain(row) for row in rows]


def _with_versions(rows: list[StageResult], store: Store, keys: Mapping[tuple[str, str], str]) -> list[StageResult]:
    """The rows; those that are no hit say whether the newest artifact was made by another version of the stage.

    ``keys`` are those of the newest artifacts of the run.
    """

    def explain(row: StageResult) -> StageResult:
        key = keys.get((row.stage, row.item))
        made = store.find(row.stage, key) if key else None
        if made is None or made.version == row.version:
            return row
        return replace(row, why=f"{row.why}; stage version {made.version} -> {row.version}")

    return [row if row.state == "hit" else explain(row) for row in rows]
