"""Makes one stage: locks its key, runs its body in a partial folder, seals the folder, logs the run."""

import errno
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from infra.errors import BadData, NoSpace, Pruned
from infra.launch.job import JobSpec
from infra.processes import signals
from infra.processes.locks import file_lock
from infra.site import Site
from infra.store.store import Artifact, Store
from infra.tracking.provenance import provenance
from infra.tracking.tracker import PRUNED
from tasks.engine.datasets import log_datasets
from tasks.engine.jobs import JobRunner
from tasks.engine.limits import NO_LIMITS, Limits
from tasks.engine.locked_tracker import LockedTracker
from tasks.engine.lookup import code_of, look_up, store_for
from tasks.engine.progress import Display, MetricsWatch, ignore_metrics
from tasks.engine.stage import Facts, StageCall, StageContext, stage_context


class StageExecutor:
    """Makes the artifact of a call, unless another process made it before this one got the lock of its key."""

    def __init__(
        self,
        store: Store,
        site: Site,
        display: Display,
        tracker: LockedTracker,
        watch: MetricsWatch = ignore_metrics,
        limits: Limits = NO_LIMITS,
    ) -> None:
        self.store, self.site, self.display, self.tracker, self.limits = store, site, display, tracker, limits
        self.jobs = JobRunner(store, site, display, tracker, watch)

    def make(self, call: StageCall, attempt: str) -> tuple[Artifact, bool]:
        """The artifact, and whether this call made it; with an ``attempt``, only an artifact of that attempt counts."""

        def waiting(holder: str) -> None:
            self.display.say(f"{call.label}: waiting for {holder}, which makes the same artifact")

        store = store_for(self.store, self.site, call)
        lock_file = store.lock_file(call.stage.name, call.key)
        with _no_space_on_full_disk(self.store.root), file_lock(lock_file, waiting) as lock:
            if found := self._existing(store, call, attempt):
                return found, False
            return self._make(store, call, attempt, lock), True

    def _existing(self, store: Store, call: StageCall, attempt: str) -> Artifact | None:
        """The artifact in the store, or restored from this machine. Moves a damaged one aside."""
        lookup = look_up(self.store, self.site, call, attempt)
        if lookup.artifact:
            return lookup.artifact
        if lookup.damaged:
            quarantined = store.quarantine(call.stage.name, call.key)
            self.display.say(f"{call.label}: {lookup.why}; moved to {quarantined}; the stage runs again")
        if not store.restore(call.stage.name, call.key, attempt):
            return None
        return look_up(self.store, self.site, call, attempt).artifact

    def _make(self, store: Store, call: StageCall, attempt: str, lock: int) -> Artifact:
        name, key, inputs = call.stage.name, call.key, call.input_contents
        out = store.begin(name, key, (inputs or {"": key}) if call.stage.resume else {}, attempt)
        run_id = ""
        try:
            with self.tracker as tracker:
                run_id = tracker.start_stage(name, call.item, key, call.form)
                log_datasets(tracker, run_id, call)
            started = time.monotonic()
            facts = self._run_body(call, out, run_id, lock)
            if replaced := [made for made in call.inputs if made.is_replaced()]:
                raise BadData(f"{replaced[0].folder} was replaced while {call.label} read it; run again")
            artifact = store.seal(
                out,
                {
                    "stage": name,
                    "key": key,
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

    def _run_body(self, call: StageCall, out: Path, run_id: str, lock: int) -> Facts:
        """Run the body of the stage. Its jobs inherit the lock, so they keep it if this process is killed."""

        def run_job(job: JobSpec) -> None:
            self.jobs.run(call, replace(job, pass_fds=(lock,)), run_id)

        report = partial(self._progress, call)
        tracker, checks = self.tracker.tracker, tuple(self.limits.checks)
        with stage_context(StageContext(self.site, call, run_job, report, tracker, run_id, checks)):
            return call.stage.body(out, **call.arguments)

    def _progress(self, call: StageCall, done: float, total: float, text: str) -> None:
        signals.check()
        self.display.progress(call, done, total, text)

    def _finish(self, run_id: str, status: str, facts: Facts) -> None:
        with self.tracker as tracker:
            tracker.finish_stage(run_id, status, facts)


def _end_by(error: BaseException) -> tuple[str, Facts]:
    """The status of a stage that ``error`` ended, and why."""
    if isinstance(error, Pruned):
        return PRUNED, {"pruned": f"{error}"}
    return "FAILED" if isinstance(error, Exception) else "KILLED", {"failure": f"{error}" or type(error).__name__}


@contextmanager
def _no_space_on_full_disk(root: Path) -> Iterator[None]:
    """Turn the OSError of a full disk into NoSpace."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise NoSpace(f"no space left under {root}: free some, or set REPRO_ROOT to another disk") from error
