"""Run the stages of a pipeline: take the hits of the plan, and have the rest made."""

import time
from collections.abc import Sequence
from functools import partial

from infra.errors import Pruned, describe
from infra.processes import signals
from infra.processes.threads import run_in_threads
from infra.store.store import Artifact
from tasks.engine.datasets import log_datasets
from tasks.engine.executor import StageExecutor, StageWork
from tasks.engine.locked_tracker import LockedTracker
from tasks.engine.lookup import Hit
from tasks.engine.planner import StageResult, StageState
from tasks.engine.run_settings import RunSettings
from tasks.engine.stage import Engine, StageCall


class Runner(Engine):
    """Runs stages one after the other, and the calls of ``Stage.map`` on threads."""

    def __init__(self, settings: RunSettings) -> None:
        self.settings = settings
        self.rows: list[StageResult] = []
        self._hits = {key: found for key, found in settings.plan.items() if isinstance(found, Hit)}
        self._tracker = LockedTracker(settings.tracker)
        self._executor = StageExecutor(settings, self._tracker)
        settings.store.say = settings.display.say

    def resolve_all(self, calls: Sequence[StageCall], at_once: int) -> list[Artifact]:
        """Run all calls, at most ``at_once`` at a time; raises a failure after the others have ended."""
        first = len(self.rows)
        order = {call.key: n for n, call in enumerate(calls)}
        try:
            return run_in_threads([partial(self.resolve, call) for call in calls], at_once, "stage")
        finally:
            self.rows[first:] = sorted(self.rows[first:], key=lambda row: order[row.key])

    def resolve(self, call: StageCall) -> Artifact:
        """The artifact of ``call``, from the store or newly made; appends its result to ``rows``."""
        signals.check()
        self.settings.scope.check(call)
        started = time.monotonic()
        planned = self._hits.get(call.key)
        work = StageWork(call, planned)
        try:
            self.settings.task_wrapper(call, planned is not None, partial(self._executor.make, work))
            found = work.found
            assert found
            broken = self.settings.limits.judge(
                self.settings.store, found.artifact, call.item, self.settings.display.say
            )
        except BaseException as error:
            state: StageState = "pruned" if isinstance(error, Pruned) else "failed"
            seconds = time.monotonic() - started
            failures = tuple(work.failures)
            self._end(StageResult.of(call, state, seconds=seconds, failure=describe(error), failures=failures))
            raise
        self._hits[call.key] = found
        if work.made:
            seconds = time.monotonic() - started
            failures = tuple(work.failures)
            self._end(
                StageResult.with_artifact(
                    call, "completed", found.artifact, seconds=seconds, broken=broken, failures=failures
                )
            )
            return found.artifact
        row = StageResult.with_artifact(call, "cached", found.artifact, code_change=found.change, broken=broken)
        self._end(row)
        with self._tracker as tracker:
            tracker.cached(call.stage.name, call.item, call.key, row.facts, row.label)
            log_datasets(tracker, "", call)
        return found.artifact

    def _end(self, row: StageResult) -> None:
        self.rows.append(row)
        self.settings.display.end(row)
