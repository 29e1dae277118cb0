"""Run the stages of a pipeline: take hits from the store, make misses here or dispatch them to another worker."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from infra.errors import BadConfiguration, Pruned, describe
from infra.processes import signals
from infra.processes.threads import run_in_threads
from infra.site import Site
from infra.store.store import Artifact, Store
from infra.tracking.tracker import Tracker
from tasks.engine.datasets import log_datasets
from tasks.engine.executor import StageExecutor
from tasks.engine.limits import NO_LIMITS, Limits
from tasks.engine.locked_tracker import LockedTracker
from tasks.engine.lookup import NO_LOOKUPS, CacheLookup, changed_input, look_up, store_for
from tasks.engine.planner import Scope, StageResult, StageState
from tasks.engine.progress import Display, MetricsWatch, ignore_metrics
from tasks.engine.remote import NO_DISPATCH, Dispatch, RemoteStage
from tasks.engine.remote_metrics import RemoteMetrics
from tasks.engine.stage import StageCall

TaskWrapper = Callable[[StageCall, bool, Callable[[], Artifact]], None]
"""``wrapper(call, hit, execute)`` calls ``execute``, in ``tasks.engine.prefect_runner`` as a Prefect task."""


def without_task(call: StageCall, hit: bool, execute: Callable[[], Artifact]) -> None:  # noqa: ARG001
    """Call ``execute`` directly."""
    execute()


class Runner:
    """Runs stages one after the other, and the calls of ``Stage.map`` on threads.

    ``lookups`` come from a plan (``Planner.lookups``); the runner does not look up its hits again.
    """

    def __init__(
        self,
        store: Store,
        site: Site,
        scope: Scope,
        display: Display,
        tracker: Tracker,
        task_wrapper: TaskWrapper = without_task,
        dispatch: Mapping[str, Dispatch] = NO_DISPATCH,
        lookups: Mapping[str, CacheLookup] = NO_LOOKUPS,
        watch: MetricsWatch = ignore_metrics,
        limits: Limits = NO_LIMITS,
    ) -> None:
        self.store, self.site, self.scope, self.display = store, site, scope, display
        self.tracker, self.task_wrapper, self.dispatch = LockedTracker(tracker), task_wrapper, dispatch
        self.rows: list[StageResult] = []
        self._lookups, self._watch, self._limits = dict(lookups), watch, limits
        self._executor = StageExecutor(store, site, display, self.tracker, watch, limits)
        store.say = display.say

    def resolve_all(self, calls: Sequence[StageCall], at_once: int) -> list[Artifact]:
        """Run all calls, at most ``at_once`` at a time; raises a failure after the others have ended."""
        first, order = len(self.rows), {call.key: n for n, call in enumerate(calls)}
        try:
            return run_in_threads([partial(self.resolve, call) for call in calls], at_once, "stage")
        finally:
            self.rows[first:] = sorted(self.rows[first:], key=lambda row: order[row.key])

    def resolve(self, call: StageCall) -> Artifact:
        """The artifact of ``call``, from the store or newly made; appends its result to ``rows``."""
        signals.check()
        self.scope.check(call)
        lookup, started, failures = self._look_up(call), time.monotonic(), list[str]()
        try:
            artifact, made = self._run(call, lookup, failures)
            broken = self._limits.judge(self.store, artifact, call.item, self.display.say)
        except BaseException as error:
            state: StageState = "pruned" if isinstance(error, Pruned) else "failed"
            row = StageResult.without_artifact(call, state, describe(error), time.monotonic() - started)
            self._finish(replace(row, failures=tuple(failures)))
            raise
        self._lookups[call.key] = CacheLookup(artifact)
        if made:
            row = StageResult.of(call, "completed", artifact, time.monotonic() - started, broken)
            self._finish(replace(row, failures=tuple(failures)))
        else:
            row = StageResult.of(call, "cached", artifact, why="; ".join(filter(None, [lookup.note, broken])))
            self._finish(row)
            with self.tracker as tracker:
                tracker.cached(call.stage.name, call.item, call.key, dict(artifact.facts), row.label)
                log_datasets(tracker, "", call)
        return artifact

    def _look_up(self, call: StageCall) -> CacheLookup:
        """The plan's lookup if it is still valid, else a new one. The executor repeats a miss under its lock."""
        lookup = self._lookups.get(call.key)
        if lookup is None:
            return look_up(self.store, self.site, call, self.scope.attempt_at(call))
        if lookup.hit or lookup.manifest is None or lookup.damaged or lookup.must_run:
            return lookup
        # When the plan compared the inputs with the manifest, some of them were not made yet.
        if changed := changed_input(call, lookup.manifest):
            return replace(lookup, why=changed)
        return look_up(self.store, self.site, call, self.scope.attempt_at(call))

    def _run(self, call: StageCall, lookup: CacheLookup, failures: list[str]) -> tuple[Artifact, bool]:
        """Call the task wrapper; returns the artifact and whether this run made it.

        Adds the reason of each failed try to ``failures``: the wrapper may try again.
        """
        if lookup.artifact:
            artifact = lookup.artifact
            self.task_wrapper(call, True, lambda: artifact)
            return artifact, False
        results: list[tuple[Artifact, bool]] = []

        def execute() -> Artifact:
            make = self._dispatch if call.stage.needs in self.dispatch else self._executor.make
            try:
                results.append(make(call, self.scope.attempt_at(call)))
            except Pruned:
                raise
            except Exception as error:
                failures.append(describe(error))
                raise
            return results[-1][0]

        self.display.begin(call, lookup.why)
        self.task_wrapper(call, False, execute)
        # If Prefect's server is lost meanwhile, the wrapper may call ``execute`` again after a success.
        return results[-1][0], any(made for _, made in results)

    def _dispatch(self, call: StageCall, attempt: str) -> tuple[Artifact, bool]:
        """Like ``StageExecutor.make``, but a worker of another pool makes the artifact."""
        lookup, store = look_up(self.store, self.site, call, attempt), store_for(self.store, self.site, call)
        if not lookup.hit and store.restore(call.stage.name, call.key, attempt):
            lookup = look_up(self.store, self.site, call, attempt)
        if lookup.artifact:
            return lookup.artifact, False
        remote = RemoteStage(call, attempt, self.tracker.tracker.run_id)
        if self._watch is not ignore_metrics:
            remote = replace(remote, watch=RemoteMetrics(store, call, self._watch))
        self.dispatch[call.stage.needs](remote)
        # An artifact of any attempt counts: the worker may already have been making it for another run.
        lookup = look_up(self.store, self.site, call)
        if lookup.artifact is None:
            message = f"another worker made {call.label}, but the store of this one does not have it ({lookup.why})"
            raise BadConfiguration(f"{message}; {lookup.remedy}")
        with self.tracker as tracker:
            tracker.cached(call.stage.name, call.item, call.key, dict(lookup.artifact.facts), "completed")
        return lookup.artifact, True

    def _finish(self, row: StageResult) -> None:
        self.rows.append(row)
        self.display.end(row)
