"""Makes one stage: locks its key, runs its body in a partial folder, seals the folder, logs the run."""

import errno
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from infra.errors import BadConfiguration, BadData, NoSpace, Pruned, describe
from infra.processes import signals
from infra.processes.locks import file_lock
from infra.store.store import Artifact, Store
from infra.tracking.provenance import provenance
from infra.tracking.tracker import PRUNED
from tasks.engine.datasets import log_datasets
from tasks.engine.jobs import JobRunner
from tasks.engine.locked_tracker import LockedTracker
from tasks.engine.lookup import Hit, Miss, MissReason, code_of, look_up, remedy, store_for
from tasks.engine.progress import ignore_metrics
from tasks.engine.remote_metrics import RemoteMetrics
from tasks.engine.run_settings import RemoteStage, RunSettings
from tasks.engine.stage import Facts, StageCall, StageContext, stage_context


@dataclass
class StageWork:
    """The work of a run on one stage: ``StageExecutor.make`` fills it, in one try or more."""

    call: StageCall
    found: Hit | None
    """The hit of the plan; then what was made."""
    made: bool = False
    """Whether this run made the artifact."""
    failures: list[str] = field(default_factory=list)
    """Why each failed try failed."""


class StageExecutor:
    """Makes the artifact of a call, unless another process made it before this one got the lock of its key."""

    def __init__(self, settings: RunSettings, tracker: LockedTracker) -> None:
        self.settings = settings
        self.tracker = tracker
        self.jobs = JobRunner(settings, tracker)

    def make(self, work: StageWork) -> Artifact:
        """The artifact, made here or by a worker of another pool unless there is one by now."""
        if work.found:  # the task wrapper calls again if Prefect's server was lost after a success
            return work.found.artifact
        call = work.call
        settings = self.settings
        attempt = settings.scope.attempt_at(call)
        store = store_for(settings.store, settings.site, call)

        def waiting(holder: str) -> None:
            settings.display.say(f"{call.label}: waiting for {holder}, which makes the same artifact")

        lock_file = store.lock_file(call.stage.name, call.key)
        with _noted_failures(work), _no_space_on_full_disk(settings.store.root):
            with file_lock(lock_file, waiting) as lock:
                found = self._look_again(store, call, attempt)
                if isinstance(found, Miss):
                    settings.display.begin(call, found)
                if isinstance(found, Miss) and call.stage.needs not in settings.dispatch:
                    found = Hit(self._make_here(store, call, attempt, lock))
                    work.made = True
            if isinstance(found, Miss):
                found = Hit(self._make_elsewhere(store, call, attempt))
                work.made = True
        work.found = found
        return found.artifact

    def _look_again(self, store: Store, call: StageCall, attempt: str) -> Hit | Miss:
        """Look up the call under the lock of its key: another process may have made it, or been cut off."""
        settings = self.settings
        found = look_up(settings.store, settings.site, call, attempt)
        if isinstance(found, Miss) and found.reason is MissReason.DAMAGED:
            quarantined = store.quarantine(call.stage.name, call.key)
            settings.display.say(f"{call.label}: {found.detail}; moved to {quarantined}; the stage runs again")
        if isinstance(found, Miss) and store.restore(call.stage.name, call.key, attempt):
            return look_up(settings.store, settings.site, call, attempt)
        return found

    def _make_here(self, store: Store, call: StageCall, attempt: str, lock: int) -> Artifact:
        """Run the body of the stage. Its jobs inherit the lock, so they keep it if this process is killed."""
        name = call.stage.name
        inputs = call.input_contents
        resumable = (inputs or {"": call.key}) if call.stage.resume else {}
        out = store.begin(name, call.key, resumable, attempt)
        run_id = ""
        try:
            with self.tracker as tracker:
                run_id = tracker.start_stage(name, call.item, call.key, call.form)
                log_datasets(tracker, run_id, call)
            started = time.monotonic()
            context = StageContext(
                site=self.settings.site,
                call=call,
                run_job=partial(self.jobs.run, call, run_id, lock),
                progress=partial(self._progress, call),
                tracker=self.settings.tracker,
                run_id=run_id,
                checks=tuple(self.settings.limits.checks),
            )
            with stage_context(context):
                facts = call.stage.body(out, **call.arguments)
            if replaced := [made for made in call.inputs if made.is_replaced()]:
                raise BadData(f"{replaced[0].folder} was replaced while {call.label} read it; run again")
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
                    "made": {**provenance(), **code_of(store, call).record},
                },
            )
        except BaseException as error:
            if not call.stage.resume or not any(out.iterdir()):
                shutil.rmtree(out, ignore_errors=True)
            self._finish(run_id, *_end_by(error))
            raise
        self._finish(run_id, "FINISHED", facts)
        return artifact

    def _make_elsewhere(self, store: Store, call: StageCall, attempt: str) -> Artifact:
        """Have a worker of another pool make the artifact."""
        settings = self.settings
        is_watched = settings.watch is not ignore_metrics
        watch = RemoteMetrics(store, call, settings.watch) if is_watched else (lambda: None)
        settings.dispatch[call.stage.needs](RemoteStage(call, attempt, settings.tracker.run_id, watch))
        # An artifact of any attempt counts: the worker may already have been making it for another run.
        found = look_up(settings.store, settings.site, call)
        if isinstance(found, Miss):
            because = " ".join(filter(None, (found.reason, found.detail, f"{found.change}")))
            message = f"another worker made {call.label}, but the store of this one does not have it ({because})"
            raise BadConfiguration(f"{message}; {remedy(found)}")
        with self.tracker as tracker:
            tracker.cached(call.stage.name, call.item, call.key, dict(found.artifact.facts), "completed")
        return found.artifact

    def _progress(self, call: StageCall, done: float, total: float, text: str) -> None:
        signals.check()
        self.settings.display.progress(call, done, total, text)

    def _finish(self, run_id: str, status: str, facts: Facts) -> None:
        with self.tracker as tracker:
            tracker.finish_stage(run_id, status, facts)


def _end_by(error: BaseException) -> tuple[str, Facts]:
    """The status of a stage that ``error`` ended, and why."""
    if isinstance(error, Pruned):
        return PRUNED, {"pruned": f"{error}"}
    return "FAILED" if isinstance(error, Exception) else "KILLED", {"failure": f"{error}" or type(error).__name__}


@contextmanager
def _noted_failures(work: StageWork) -> Iterator[None]:
    """Note why the try in this block failed."""
    try:
        yield
    except Pruned:
        raise
    except BaseException as error:
        work.failures.append(describe(error))
        raise


@contextmanager
def _no_space_on_full_disk(root: Path) -> Iterator[None]:
    """Turn the OSError of a full disk into NoSpace."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise NoSpace(f"no space left under {root}: free some, or set REPRO_ROOT to another disk") from error
