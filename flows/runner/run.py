"""Runs a resolved request: runs its stages, writes its record under the root, and logs a run to MLflow."""

import shlex
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from flows.runner import records
from flows.runner.outcome import Outcome, StageFailed, cached_outcome
from flows.runner.recorded_runs import UnreadableRecord, read_header, read_runs
from flows.runner.records import FINISHED, KILLED, RUNNING
from flows.runner.request import RunPlan
from flows.runs.overrides import run_title, settings_text
from infra.errors import Fault, describe
from infra.tracking.mlflow_runs import OVERRIDES, PARENT, SETTINGS
from infra.tracking.tracker import RunEnd, Tracker, ending
from tasks.engine.keys import canonical
from tasks.engine.limits import Check, Limits
from tasks.engine.planner import StageResult, StopPipeline
from tasks.engine.progress import Display
from tasks.engine.run_settings import RunSettings
from tasks.engine.runner import Runner
from tasks.engine.stage import engine
from tasks.reporting.stage_files import stage_files

TRACKED_SETTINGS = ("vocabulary", "sharding", "model", "training", "averaging", "decoding")
"""The parts of a run that are logged to MLflow as parameters."""


@contextmanager
def running(
    planned: RunPlan, display: Display, make_runner: Callable[[RunSettings], Runner] = Runner
) -> Iterator[Outcome]:
    """Make the missing stages that the block calls. Raises StageFailed, or the fault that the plan found.

    Yields the outcome, which is complete after the block.
    """
    resolved = planned.resolved
    site = resolved.site
    tracker = Tracker(site.tracking, site.root.absolute() / "mlflow-artifacts")
    if planned.scope.attempt.is_resumed:
        display.say("the same request did not finish before: its forced stages continue from there")
    limits = Limits.parse(resolved.run.expect)
    record = RunRecord(planned, display.say)
    lock = threading.Lock()

    def keep_record() -> None:
        with lock:  # stages may end at the same time
            known = {row.key for row in runner.rows}
            rows = [*runner.rows, *(row for row in planned.outcome.rows if row.key not in known)]
            record.write(rows, RUNNING)

    runner = make_runner(
        RunSettings(
            store=planned.store,
            site=site,
            scope=planned.scope,
            display=display,
            tracker=tracker,
            plan=planned.lookups,
            limits=limits,
            files=stage_files,
            on_completed=keep_record,
            hint=f" (`repro logs {shlex.quote(resolved.run.name)} --follow` shows it)",
        )
    )
    outcome = Outcome(resolved.run.name, runner.rows)
    end = RunEnd()
    try:
        with ending(tracker) as end:
            try:
                # From the start the record names all artifacts of the run, so that garbage collection keeps them.
                keep_record()
                if cached_outcome(planned.outcome) is None:  # without work, no run in MLflow
                    display.say(f"jobs run {site.place}")
                    _start_tracking(tracker, planned)
                with engine(runner), suppress(StopPipeline):
                    yield outcome
            except Exception as error:
                failed = next((row.place for row in runner.rows if row.state == "failed"), "run")
                outcome.failure = end.why = f"{failed} failed: {describe(error)}"
                raise StageFailed(outcome) from error
    finally:
        record.write(runner.rows, end.status, end.why, limits.checks)
        runner.close()


class RunRecord:
    """The record of one start of a run: a file that is rewritten as the run progresses.

    ``dispatch`` writes it before it starts a server (``until_running``), ``running`` after each stage and at the end,
    and ``dispatch`` again if the run had nothing left to do (``close``). For a run without work it is written once
    (``conclude``).
    """

    def __init__(self, planned: RunPlan, say: Callable[[str], None]) -> None:
        self.planned = planned
        self.say = say

    def write(self, rows: Sequence[StageResult], status: str, failure: str = "", checks: Sequence[Check] = ()) -> None:
        """Write the record with these stages; reports an error only at the end of the run."""
        planned = self.planned
        resolved = planned.resolved
        store = planned.store
        try:
            file = records.write(
                store.root,
                resolved.run.name,
                vars(resolved.request),
                rows,
                status,
                planned.started,
                attempt=planned.scope.attempt.id,
                failure=failure,
                checks=checks,
                group=resolved.group,
                title=resolved.title,
            )
            store.share(file)
        except (OSError, Fault) as error:
            # The same error may also end the run with its own message: report it once, at the end.
            if status != RUNNING:
                self.say(f"the record of this run was not written, or not sent to the bucket: {error}")

    @contextmanager
    def until_running(self) -> Iterator[None]:
        """Write the record before a server starts, so that a run killed this early is on record."""
        rows = self.planned.outcome.rows
        self.write(rows, RUNNING)
        try:
            yield
        except BaseException as error:
            if self._is_open():
                failed = isinstance(error, Exception)
                self.write(rows, "FAILED" if failed else KILLED, f"run failed: {describe(error)}" if failed else "")
            raise

    def close(self, outcome: Outcome) -> None:
        """Mark the record as finished if the run did not: another run made all artifacts first."""
        if self._is_open():
            self.write(outcome.rows, FINISHED)

    def conclude(self, cached: Outcome) -> None:
        """Record a request whose artifacts all exist, unless the run's newest record is of the same one.

        Thus a run that was killed after its last stage is not resumed, and garbage collection keeps the artifacts of
        the last request.
        """
        planned = self.planned
        name, overrides = planned.resolved.run.name, planned.resolved.request.overrides
        newest = next(read_runs(planned.store.root, name), None)
        known = {(stage.stage, stage.key) for stage in newest.stages} if newest else set()
        used = {(row.stage, row.key) for row in cached.rows}
        is_new = newest is None or newest.outcome != FINISHED or newest.overrides != tuple(overrides)
        if planned.interrupted or is_new or not used <= known:
            self.write(cached.rows, FINISHED)

    def _is_open(self) -> bool:
        planned = self.planned
        file = records.record_file(planned.store.root, planned.resolved.run.name, planned.started)
        try:
            return read_header(file).is_open
        except UnreadableRecord:  # it could not be written
            return False


def _start_tracking(tracker: Tracker, planned: RunPlan) -> None:
    resolved = planned.resolved
    run = resolved.run
    request = resolved.request
    start = planned.initial.version if planned.initial else ""
    tags = {OVERRIDES: " ".join(request.overrides), SETTINGS: settings_text(request.overrides)}
    tags |= {"site": request.site, "start": start, "corpus": run.corpus.name}
    tags |= {f"set.{path}": text for path, _, text in (each.partition("=") for each in request.overrides)}
    tags |= {PARENT: resolved.parent} if resolved.parent else {}
    settings = {name: getattr(run, name) for name in TRACKED_SETTINGS}
    title = resolved.title or run_title(run.name, request.overrides)
    tracker.start(resolved.experiment or run.name, title, tags, canonical(settings))
