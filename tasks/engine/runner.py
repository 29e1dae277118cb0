"""Makes what is missing: each stage is locked, executed, sealed and logged; independent stages run on threads."""

import errno
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from pathlib import Path

from infra.errors import BadConfiguration, Fault, NoSpace
from infra.launch.batch_queue import QueueLauncher
from infra.launch.job import JobSpec, Launcher
from infra.launch.kubernetes import kubernetes_launcher
from infra.launch.local import LocalLauncher
from infra.launch.slurm import slurm_launcher
from infra.processes import signals
from infra.processes.gpu_locks import lock_gpus
from infra.processes.locks import file_lock
from infra.site import Site
from infra.store.local import Artifact, Store
from infra.tracking.metrics_tail import MetricsTail
from infra.tracking.provenance import provenance
from infra.tracking.tracker import Tracker
from tasks.engine.planner import Scope, StageResult, look_up, row_of, store_for
from tasks.engine.progress import Display, describe_metrics
from tasks.engine.stage import NO_DISPATCH, Dispatch, RemoteStage, StageCall, StageContext, stage_context

LAUNCHERS: dict[str, Callable[[], Launcher]] = {
    "local": LocalLauncher,
    "slurm": slurm_launcher,
    "kubernetes": kubernetes_launcher,
}
"""By ``Site.launcher``."""


TaskWrapper = Callable[[StageCall, bool, Callable[[], Artifact]], None]
"""How the body is called: (call, hit, execute). Prefect's way is in ``tasks.engine.prefect_runner``; ``without_task``
has none."""


def without_task(call: StageCall, hit: bool, execute: Callable[[], Artifact]) -> None:  # noqa: ARG001
    execute()


class Runner:
    """Makes what is missing, one stage after the other; calls that may go together, on threads."""

    def __init__(
        self,
        store: Store,
        site: Site,
        scope: Scope,
        display: Display,
        tracker: Tracker,
        task_wrapper: TaskWrapper = without_task,
        dispatch: Mapping[str, Dispatch] = NO_DISPATCH,
    ) -> None:
        self.store, self.site, self.scope, self.display = store, site, scope, display
        self.tracker, self.task_wrapper, self.dispatch = tracker, task_wrapper, dispatch
        self.launcher = LAUNCHERS[site.launcher]()
        if isinstance(self.launcher, QueueLauncher):
            self.launcher.say = display.say
        self.rows: list[StageResult] = []
        store.say = display.say
        self._tracker_lock = threading.Lock()
        """Held while the tracker, which knows no threads, is written to."""

    def resolve_all(self, calls: Sequence[StageCall], at_once: int) -> list[Artifact]:
        """All of them, at most ``at_once`` at a time; a failure is raised when the others have ended."""
        first, order = len(self.rows), {call.key: n for n, call in enumerate(calls)}
        with ThreadPoolExecutor(at_once, thread_name_prefix="stage") as pool:
            futures = [pool.submit(copy_context().run, self.resolve, call) for call in calls]
            try:
                while wait(futures, signals.POLL_SECONDS).not_done:
                    signals.check()
            except BaseException:
                for future in futures:
                    future.cancel()
                signals.stop_all_threads()
                raise
        self.rows[first:] = sorted(self.rows[first:], key=lambda row: order[row.key])
        return [future.result() for future in futures]

    def resolve(self, call: StageCall) -> Artifact:
        signals.check()
        self.scope.check(call)
        attempt = self.scope.attempt_at(call)
        lookup = look_up(self.store, self.site, call, attempt)
        made: list[Artifact] = []
        started = time.monotonic()

        def execute() -> Artifact:
            artifact, ran = self._make_or_dispatch(call, attempt)
            if ran:
                made.append(artifact)
            return artifact

        try:
            if not lookup.hit:
                self.display.begin(call, lookup.why)
            self.task_wrapper(call, lookup.hit, execute)
        except BaseException as error:
            why = f"{error}" if isinstance(error, Fault) else f"{type(error).__name__}: {error}"
            row = replace(row_of(call, "failed", Artifact(call.stage.name, call.key, Path())), why=why)
            self._finish(replace(row, seconds=time.monotonic() - started))
            raise
        store = store_for(self.store, self.site, call)
        manifest = store.manifest(call.stage.name, call.key)
        assert manifest, "a stage that ended well left its manifest"
        artifact = store.artifact(manifest)
        row = row_of(call, "completed" if made else "cached", artifact)
        self._finish(replace(row, seconds=time.monotonic() - started if made else 0.0))
        if not made:
            with self._tracker_lock:
                self.tracker.cached(call.stage.name, call.item, call.key, row.facts)
        return artifact

    def _progress(self, call: StageCall, done: float, total: float, text: str) -> None:
        signals.check()
        self.display.progress(call, done, total, text)

    def _finish(self, row: StageResult) -> None:
        self.rows.append(row)
        self.display.end(row)

    def _make_or_dispatch(self, call: StageCall, attempt: str) -> tuple[Artifact, bool]:
        """The artifact, and whether it had to be made: by the worker that the stage's need is handed to, or here."""
        name, key, store = call.stage.name, call.key, store_for(self.store, self.site, call)
        if call.stage.needs not in self.dispatch:
            return self._make_here(call, attempt)
        if look_up(self.store, self.site, call, attempt).hit or (not attempt and store.restore(name, key)):
            return self._make_here(call, attempt)
        self.dispatch[call.stage.needs](RemoteStage(call, attempt, self.tracker.run_id))
        # Of any attempt: a flow run that was making the same already may have been joined.
        lookup = look_up(self.store, self.site, call)
        if not lookup.hit or not lookup.manifest:
            message = f"{call.label} was made by another worker, but is not in the store of this one ({lookup.why})"
            raise BadConfiguration(f"{message}: both need the same REPRO_ROOT")
        with self._tracker_lock:
            self.tracker.cached(name, call.item, key, lookup.manifest.facts, "completed")
        return store.artifact(lookup.manifest), True

    def _make_here(self, call: StageCall, attempt: str) -> tuple[Artifact, bool]:
        """The artifact, and whether it had to be made: under the key's lock, so that one of several runs makes it."""

        def waiting(holder: str) -> None:
            self.display.say(f"{call.label}: waiting for {holder}, which is making the same")

        name, key, store = call.stage.name, call.key, store_for(self.store, self.site, call)
        with _space_faults(self.store.root), file_lock(store.lock_file(name, key), waiting) as lock:
            lookup = look_up(self.store, self.site, call, attempt)
            if lookup.hit:
                assert lookup.manifest
                return store.artifact(lookup.manifest), False
            if lookup.damaged:
                aside = store.quarantine(name, key)
                self.display.say(f"{call.label}: {lookup.why}; moved aside to {aside} and made again")
            if not attempt and store.restore(name, key) and (lookup := look_up(self.store, self.site, call)).hit:
                assert lookup.manifest
                return store.artifact(lookup.manifest), False
            inputs = {f"{a.stage}/{a.key}": a.content for a in call.inputs}
            out = store.partial(name, key, (inputs or {"": key}) if call.stage.resume else {}, attempt)
            run_id = ""
            try:
                with self._tracker_lock:
                    run_id = self.tracker.start_stage(name, call.item, key, call.form)
                started = time.monotonic()
                context = StageContext(
                    site=self.site,
                    call=call,
                    run_job=lambda job: self._run_job(call, replace(job, pass_fds=(lock,)), run_id),
                    progress=partial(self._progress, call),
                    tracker=self.tracker,
                    run_id=run_id,
                )
                with stage_context(context):
                    facts = call.stage.body(out, **call.arguments)
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
                        "made": provenance(),
                    },
                )
            except BaseException as error:
                if not call.stage.resume or not any(out.iterdir()):
                    store.discard(out)
                status = "FAILED" if isinstance(error, Exception) else "KILLED"
                with self._tracker_lock:
                    self.tracker.finish_stage(run_id, status, {"failure": f"{error}" or type(error).__name__})
                raise
            finally:
                self.store.release()
            with self._tracker_lock:
                self.tracker.finish_stage(run_id, "FINISHED", facts)
            return artifact, True

    def _run_job(self, call: StageCall, job: JobSpec, run_id: str) -> None:
        tail = MetricsTail(job.out / "metrics.jsonl")

        def poll() -> None:
            self.store.sync_checkpoint(job.out)
            rows = tail.read()
            if rows:
                self.tracker.log_rows(run_id, rows)
                last = rows[-1]
                self.display.progress(call, last.get("done", 0), last.get("total", 0), describe_metrics(rows))

        # A launcher that goes to other nodes is given theirs by whoever shares those out.
        gpus = self.site.gpus if call.stage.needs == "gpu" and self.site.launcher == "local" else ()
        with lock_gpus(
            gpus, job.ranks, lambda: self.display.say(f"{call.label}: waiting for a GPU of this machine")
        ) as own:
            self.launcher.run(replace(job, gpus=own.names, pass_fds=(*job.pass_fds, *own.locks)), poll)


@contextmanager
def _space_faults(root: Path) -> Iterator[None]:
    """Turn a full disk, wherever it is met, into one sentence."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise NoSpace(f"no space left under {root}: free some, or set REPRO_ROOT to another disk") from error
