"""Runs a resolved request: its stages under a runner, its record under the root, its run in MLflow."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType

from flows.runner import records
from flows.runner.outcome import Outcome, StageFailed, cached_outcome
from flows.runner.recorded_runs import UnreadableRecord, newest_artifacts, read_header
from flows.runner.records import FINISHED, KILLED, RUNNING
from flows.runner.request import RunPlan
from flows.runs.overrides import run_title, settings_text
from infra.errors import Fault, Pruned, describe
from infra.tracking.tracker import OVERRIDES, PARENT, PRUNED, SETTINGS, Tracker
from tasks.engine.keys import canonical
from tasks.engine.limits import Check, Limits
from tasks.engine.planner import StageResult
from tasks.engine.progress import Display
from tasks.engine.run_settings import Dispatch, RunSettings, TaskWrapper, without_task
from tasks.engine.runner import Runner

TRACKED_SETTINGS = ("vocabulary", "sharding", "model", "training", "averaging", "decoding")
"""The parts of a run that are parameters of its run in MLflow."""


def run(
    planned: RunPlan,
    display: Display,
    task_wrapper: TaskWrapper = without_task,
    dispatch: Mapping[str, Dispatch] = MappingProxyType({}),
) -> Outcome:
    """Make what is missing; raises StageFailed, or a Fault of the plan before anything ran.

    Where the watch of the request ends the run early, the outcome says so in ``pruned``.
    """
    resolved = planned.resolved
    site = resolved.site
    tracker = Tracker(site.tracking, site.root.absolute() / "mlflow-artifacts")
    if planned.scope.attempt.is_resumed:
        display.say("the same request was cut off before: its forced stages go on from there")
    limits = Limits.parse(resolved.run.expect)
    lock = threading.Lock()

    def keep_record() -> None:
        with lock:  # stages may end at once
            known = {row.key for row in runner.rows}
            rows = [*runner.rows, *(row for row in planned.outcome.rows if row.key not in known)]
            _write_record(planned, rows, RUNNING, display.say)

    runner = Runner(
        RunSettings(
            store=planned.store,
            site=site,
            scope=planned.scope,
            display=display,
            tracker=tracker,
            task_wrapper=task_wrapper,
            dispatch=dispatch,
            plan=planned.lookups,
            watch=resolved.watch,
            limits=limits,
            on_completed=keep_record,
        )
    )
    outcome = Outcome(resolved.run.name, runner.rows)
    status = "FAILED"
    try:
        # From its start the record names what the run is about to use, so that garbage collection keeps it.
        keep_record()
        if cached_outcome(planned.outcome) is None:  # a run that makes nothing is not worth a run in MLflow
            elsewhere = ", but for stages that another pool makes" if dispatch else ""
            display.say(f"jobs run {site.place}{elsewhere}")
            _start_tracking(tracker, planned)
        resolved.call_stages(runner, planned.initial)
        status = FINISHED
    except Pruned as pruned:
        status = PRUNED
        outcome.pruned = f"{pruned}"
    except Exception as error:
        outcome.failure = _failure(runner.rows, error)
        raise StageFailed(outcome) from error
    except BaseException:
        status = KILLED
        raise
    finally:
        why = outcome.failure or outcome.pruned
        tracker.finish(status, why)
        _write_record(planned, runner.rows, status, display.say, why, limits.checks)
    return outcome


@contextmanager
def on_record(planned: RunPlan, say: Callable[[str], None]) -> Iterator[None]:
    """Keep a record while a server is started and ``run`` is called.

    So a run that is killed, or fails, before it comes to ``run`` is on record too.
    """
    rows = planned.outcome.rows
    _write_record(planned, rows, RUNNING, say)
    try:
        yield
    except BaseException as error:
        if _is_open(planned):
            failed = isinstance(error, Exception)
            # A forced attempt that was cut off goes on with the next start: nothing of it ran in this one.
            status = "FAILED" if failed and not planned.scope.attempt.is_resumed else KILLED
            _write_record(planned, rows, status, say, f"run failed: {describe(error)}" if failed else "")
        raise


def close_record(planned: RunPlan, outcome: Outcome, say: Callable[[str], None]) -> None:
    """Close the record of a run that ``run`` did not make, since another run made everything meanwhile."""
    if _is_open(planned):
        _write_record(planned, outcome.rows, FINISHED, say)


def _is_open(planned: RunPlan) -> bool:
    """Whether its record still says that it runs."""
    file = records.record_file(planned.store.root, planned.resolved.run.name, planned.started)
    try:
        return read_header(file).is_open
    except UnreadableRecord:  # it could not be written
        return False


def conclude(planned: RunPlan, done: Outcome, say: Callable[[str], None]) -> None:
    """Record a request that is done without a run, unless its newest record names the same artifacts.

    So nobody resumes a run that was cut off after its last stage, and garbage collection keeps what was asked for last.
    """
    used = {(row.stage, row.key) for row in done.rows}
    resolved = planned.resolved
    known = newest_artifacts(planned.store.root, resolved.run.name, resolved.request.overrides)
    if planned.interrupted or not used <= known:
        _write_record(planned, done.rows, FINISHED, say)


def _start_tracking(tracker: Tracker, planned: RunPlan) -> None:
    resolved = planned.resolved
    run = resolved.run
    request = resolved.request
    initial = planned.initial
    overrides = " ".join(request.overrides)
    start = initial.version if initial else ""
    settings = {name: getattr(run, name) for name in TRACKED_SETTINGS}
    tags = {OVERRIDES: overrides, SETTINGS: settings_text(request.overrides), "site": request.site, "start": start}
    by_field = {f"set.{path}": text for path, _, text in (each.partition("=") for each in request.overrides)}
    grouped = {PARENT: resolved.parent} if resolved.parent else {}
    title = resolved.title or run_title(run.name, request.overrides)
    tracker.start(resolved.experiment or run.name, title, {**tags, **by_field, **grouped}, canonical(settings))


def _failure(rows: Sequence[StageResult], error: Exception) -> str:
    failed = next((row for row in rows if row.state == "failed"), None)
    label = f"{failed.stage} {failed.item}".strip() if failed else "run"
    return f"{label} failed: {describe(error)}"


def _write_record(
    planned: RunPlan,
    rows: Sequence[StageResult],
    status: str,
    say: Callable[[str], None],
    failure: str = "",
    checks: Sequence[Check] = (),
) -> None:
    resolved = planned.resolved
    store = planned.store
    request = vars(resolved.request)
    name = resolved.run.name
    attempt = planned.scope.attempt.id
    try:
        member = (resolved.group, resolved.title)
        store.share(
            records.write(store.root, name, request, rows, status, planned.started, attempt, failure, checks, *member)
        )
    except (OSError, Fault) as error:
        # What prevents the record may also end the run, with a message of its own: say this once, at the end.
        if status != RUNNING:
            say(f"this run left no record: {error}")
