"""Run the stages of a pipeline: take the hits of the plan, make what is missing, log both to MLflow."""

import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path

from infra.errors import BadData, describe, fault_of_disk
from infra.launch.batch_queue import QueueLauncher
from infra.processes import signals
from infra.processes.locks import file_lock
from infra.processes.threads import run_in_threads
from infra.store.store import Artifact, Store
from infra.tracking.provenance import provenance
from tasks.durations import duration
from tasks.engine.jobs import LAUNCHERS, run_job
from tasks.engine.lookup import Hit, Miss, MissReason, code_of, look_up, store_for
from tasks.engine.planner import StageResult
from tasks.engine.run_settings import RunSettings
from tasks.engine.stage import Engine, Facts, StageCall, StageContext, stage_context

EVIDENCE = ("job.log", "metrics.jsonl", "rejected.parquet", "refused.json")
"""Files of a stage that say why it failed."""


class Runner(Engine):
    """Runs stages one after the other, and the calls of ``Stage.map`` on threads."""

    def __init__(self, settings: RunSettings) -> None:
        self.settings = settings
        self.rows: list[StageResult] = []
        self.launcher = LAUNCHERS[settings.site.launcher]()
        if isinstance(self.launcher, QueueLauncher):
            self.launcher.say = settings.display.say
        self._hits = {key: lookup for key, lookup in settings.plan.items() if isinstance(lookup, Hit)}
        """The hits of the plan and of earlier calls, by key."""
        settings.store.say = settings.display.say

    def close(self) -> None:
        """Release what the runner holds open; the run calls this after its last stage."""

    def resolve_all(self, calls: Sequence[StageCall], at_once: int) -> list[Artifact]:
        """Run all calls, at most ``at_once`` at a time; raises a failure after the others have ended."""
        first = len(self.rows)
        order = {call.key: n for n, call in enumerate(calls)}
        try:
            return run_in_threads([partial(self.resolve, call) for call in calls], at_once, "stage")
        finally:
            self.rows[first:] = sorted(self.rows[first:], key=lambda row: order[row.key])

    def resolve(self, call: StageCall) -> Artifact:
        """The artifact of ``call``, from the store or newly made. ``PrefectRunner`` does the same in a Prefect task."""
        with self.resolution(call) as failures:
            self.make(call, failures)
        return self._hits[call.key].artifact

    @contextmanager
    def resolution(self, call: StageCall) -> Iterator[list[str]]:
        """Append the result of the block's call to ``rows``; raises what the block raises.

        Yields the list of why each try failed, for the block to fill. Raises StopPipeline after the last requested
        stage, BadData if an artifact breaks a limit.
        """
        signals.check()
        settings = self.settings
        settings.scope.check(call)
        started = time.monotonic()
        failures: list[str] = []
        try:
            yield failures
            hit = self._hits[call.key]
            broken = settings.limits.judge(hit.artifact, call.item, settings.display.say)
        except BaseException as error:
            seconds = time.monotonic() - started
            failure = describe(error)
            self._end(StageResult.of(call, "failed", seconds=seconds, failure=failure, failures=tuple(failures)))
            raise
        self._hits[call.key] = Hit(hit.artifact, hit.change)
        if hit.is_new:
            seconds = time.monotonic() - started
            self._end(StageResult.of(call, "completed", hit, broken=broken, seconds=seconds, failures=tuple(failures)))
            return
        row = StageResult.of(call, "cached", hit, broken=broken)
        self._end(row)
        with settings.tracker_lock:
            settings.tracker.cached(call.stage.name, call.item, call.key, row.facts, row.label)

    def make(self, call: StageCall, failures: list[str]) -> Hit:
        """Make the artifact unless it exists by now. A try that fails notes why."""
        # A hit of the plan; or Prefect's server was lost after a success, and the task is called again.
        if call.key in self._hits:
            return self._hits[call.key]
        settings = self.settings
        attempt = settings.scope.attempt_at(call)
        store = store_for(settings.store, settings.site, call)
        began = time.monotonic()

        def waiting(holder: str) -> None:
            waited = time.monotonic() - began
            so_far = f" {duration(waited)} so far" if waited > 1 else ""
            settings.display.say(f"{call.label}: waiting{so_far} for {holder}, which makes the same artifact")

        lock_file = store.lock_file(call.stage.name, call.key)
        try:
            with file_lock(lock_file, waiting, settings.hint) as lock:
                lookup = self._look_again(store, call, attempt)
                if isinstance(lookup, Miss):
                    settings.display.begin(call, lookup)
                    lookup = Hit(self._make(store, call, attempt, lock, failures), is_new=True)
        except BaseException as error:
            fault = fault_of_disk(error, settings.store.root) if isinstance(error, OSError) else None
            failures.append(describe(fault or error))
            if fault:  # a full or absent disk
                raise fault from error
            raise
        self._hits[call.key] = lookup
        return lookup

    def _look_again(self, store: Store, call: StageCall, attempt: str) -> Hit | Miss:
        """Look up the call under the lock of its key: another process may have made the artifact or been killed."""
        settings = self.settings
        lookup = look_up(settings.store, settings.site, call, attempt)
        if isinstance(lookup, Miss) and lookup.reason is MissReason.DAMAGED:
            quarantined = store.quarantine(call.stage.name, call.key)
            settings.display.say(f"{call.label}: {lookup.detail}; moved to {quarantined}; the stage runs again")
        if isinstance(lookup, Miss) and store.restore(call.stage.name, call.key, attempt):
            return look_up(settings.store, settings.site, call, attempt)
        return lookup

    def _make(self, store: Store, call: StageCall, attempt: str, lock: int, failures: list[str]) -> Artifact:
        """Call the body with a folder and an MLflow run, and seal the folder at the end.

        The stage's jobs inherit ``lock``, so they hold it if this process is killed.
        """
        name = call.stage.name
        settings = self.settings
        inputs = call.input_contents
        resumable = (inputs or {"": call.key}) if call.stage.resume else {}
        origin = call.stage.origin(store, settings.site, call, bool(attempt))
        out = store.begin(name, call.key, resumable, attempt)
        continues = any(out.iterdir())
        if origin and not continues:
            settings.display.say(f"{call.label} {origin}")
        run_id = ""
        facts: Facts = {}
        try:
            with settings.tracker_lock:
                run_id = settings.tracker.start_stage(name, call.item, call.key, call.form, continues)
            started = time.monotonic()
            context = StageContext(
                site=settings.site,
                call=call,
                run_job=partial(run_job, settings, self.launcher, self.progress, call, run_id, lock),
                progress=partial(self.progress, call),
                tracker=settings.tracker,
                run_id=run_id,
                origin=origin,
                checks=tuple(settings.limits.checks),
                failures=failures,
                say=settings.display.say,
            )
            with stage_context(context):
                facts = call.stage.body(out, **call.arguments)
            if replaced := [each for each in call.inputs if each.is_replaced()]:
                raise BadData(f"{replaced[0].folder} was replaced while {call.label} read it; run again")
            made = provenance() | ({"origin": origin.record} if origin else {})
            artifact = store.seal(
                out,
                {
                    "stage": name,
                    "key": call.key,
                    "version": call.stage.version,
                    "item": call.item,
                    "arguments": call.form,
                    "inputs": inputs,
                    "facts": facts,
                    "seconds": round(time.monotonic() - started, 3),
                    "made": made | asdict(code_of(store, call)),
                },
            )
        except BaseException as error:
            is_sealed = bool(facts) and not out.exists()  # it could not be sent: the next try or run sends it
            if call.stage.resume:
                with suppress(OSError):  # not empty: work to resume; not there: sealed
                    out.rmdir()
            else:
                _keep_evidence(out, store.failed_folder(name, call.key))
            status = "FAILED" if isinstance(error, Exception) else "KILLED"
            end = ("FINISHED", facts) if is_sealed else (status, {"failure": describe(error)})
            with settings.tracker_lock:
                if is_sealed and (copy := store.local().find(name, call.key)):
                    settings.tracker.log_files(run_id, partial(settings.files, call, store.local().artifact(copy)))
                settings.tracker.finish_stage(run_id, *end)
            raise
        with settings.tracker_lock:
            settings.tracker.log_files(run_id, partial(settings.files, call, artifact))
            settings.tracker.finish_stage(run_id, "FINISHED", facts)
        return artifact

    def progress(self, call: StageCall, done: float, total: float, text: str) -> None:
        """Show the progress of a call; raises the exception of a signal."""
        signals.check()
        self.settings.display.progress(call, done, total, text)

    def _end(self, row: StageResult) -> None:
        self.rows.append(row)
        self.settings.display.end(row)
        if row.state == "completed":
            self.settings.on_completed()


def _keep_evidence(out: Path, place: Path) -> None:
    """Move the ``EVIDENCE`` of a failed stage to ``place``; remove the other files, and the folder if it is empty."""
    for path in [*out.iterdir()] if out.is_dir() else []:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name not in EVIDENCE or not path.stat().st_size:
            path.unlink()
    with suppress(OSError):  # sealed, or a full disk
        out.rename(place) if any(out.iterdir()) else out.rmdir()
