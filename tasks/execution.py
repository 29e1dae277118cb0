"""The two ways to resolve a stage's call: ``Planning`` only looks, ``Running`` makes what is missing.

One decision serves both, and Prefect as well: the manifest. A stage is a hit when its manifest is there, each input
has the content it had when the stage ran, every file has its sum, and what it did outside still stands.

A forced stage belongs to an attempt, which begins with the request and goes on after a kill. Only what that attempt
made is a hit, and only a folder that it left half-made is resumed. A stage that is not forced takes both from anyone.
"""

import errno
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol

from infra import interrupts
from infra.faults import BadConfiguration, Fault, NoSpace
from infra.gpus import taken
from infra.launch import Job, Launcher
from infra.launch.kubernetes import kubernetes_launcher
from infra.launch.local import LocalLauncher
from infra.launch.queued import QueueLauncher
from infra.launch.slurm import slurm_launcher
from infra.locks import held
from infra.origin import origin
from infra.site import Site
from infra.store import Artifact, Manifest, Store
from infra.tracking import MetricsTail, Tracker
from tasks.handed import NOWHERE, Handed, HandOver
from tasks.stage import Call, Surroundings, surroundings

LAUNCHERS: dict[str, Callable[[], Launcher]] = {
    "local": LocalLauncher,
    "slurm": slurm_launcher,
    "kubernetes": kubernetes_launcher,
}
"""By ``Site.launcher``."""
State = Literal["cached", "completed", "failed", "hit", "miss", "waits"]


class Enough(Exception):
    """The last stage asked for is done."""


@dataclass(frozen=True)
class Scope:
    """Which stages of the story may run, and which must."""

    order: tuple[str, ...]
    until: str = ""
    forced: frozenset[str] = frozenset()
    attempt: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Which attempt the forced stages belong to: a new one, unless one that was cut off is to be gone on with."""

    def attempt_at(self, call: Call) -> str:
        """The attempt that must make ``call``; "" where an artifact by anyone will do."""
        return self.attempt if call.stage.name in self.forced else ""

    def check(self, call: Call) -> None:
        """Raise Enough for a stage behind ``until``."""
        if self.until and self.order.index(call.stage.name) > self.order.index(self.until):
            raise Enough


@dataclass(frozen=True)
class Verdict:
    """Whether a call is a hit, and in a few words why not."""

    hit: bool
    why: str = ""
    manifest: Manifest | None = None
    damaged: bool = False
    forced: bool = False


@dataclass(frozen=True)
class Row:
    """What became of one stage in one run."""

    stage: str
    item: str
    key: str
    state: State
    seconds: float = 0.0
    path: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    why: str = ""
    form: dict[str, Any] = field(default_factory=dict)
    """The arguments in canonical form, kept in the run's record so that the next plan can say what changed."""


class Display(Protocol):
    """Where a run shows itself. Every call may be ignored."""

    def begin(self, call: Call, why: str) -> None: ...
    def progress(self, call: Call, done: float, total: float, text: str) -> None: ...
    def say(self, text: str) -> None: ...
    def end(self, row: Row) -> None: ...


def judge(store: Store, site: Site, call: Call, attempt: str = "") -> Verdict:
    """Is the artifact of ``call`` there, whole, made from what its inputs hold now, and by ``attempt`` if one must?"""
    verdict = _judge(store, site, call)
    if attempt and not (verdict.manifest and verdict.manifest.made.get("attempt") == attempt):
        return replace(verdict, hit=False, why="forced", forced=True)
    return verdict


def _judge(store: Store, site: Site, call: Call) -> Verdict:
    store = placed(store, site, call)
    manifest = store.manifest(call.stage.name, call.key)
    if manifest is None:
        return Verdict(False, "not made yet")
    for artifact in call.inputs:
        if manifest.inputs.get(f"{artifact.stage}/{artifact.key}") != artifact.content:
            return Verdict(False, f"{artifact.stage} has other content than when this was made", manifest)
    if damage := store.damage(manifest):
        return Verdict(False, damage, manifest, damaged=True)
    if not call.stage.standing(store.artifact(manifest), site):
        return Verdict(False, "what it registered is gone", manifest)
    return Verdict(True, "", manifest)


def placed(store: Store, site: Site, call: Call) -> Store:
    """Where the artifact of ``call`` belongs: what it did at an MLflow of this machine is nothing to the others."""
    return store.local() if call.stage.reaches_out and not site.shares_tracking else store


class Planning:
    """Looks, makes nothing: rows say hit, miss, or waits (a hit unless what must be made first comes out otherwise)."""

    def __init__(self, store: Store, site: Site, scope: Scope) -> None:
        self.store, self.site, self.scope = store, site, scope
        self.rows: list[Row] = []
        self._unmade: dict[str, str] = {}

    def resolve_all(self, calls: Sequence[Call], at_once: int) -> list[Artifact]:  # noqa: ARG002
        return [self.resolve(call) for call in calls]

    def resolve(self, call: Call) -> Artifact:
        self.scope.check(call)
        waits_for = [self._unmade[a.key] for a in call.inputs if a.key in self._unmade]
        verdict = judge(self.store, self.site, call, self.scope.attempt_at(call))
        state: State = "hit" if verdict.hit else "miss"
        why = verdict.why
        if waits_for and verdict.manifest and not verdict.forced:
            state, why = "waits", f"runs if {_list(waits_for)} comes out otherwise"
        elif verdict.hit:
            assert verdict.manifest
            artifact = placed(self.store, self.site, call).artifact(verdict.manifest)
            self.rows.append(_row(call, "hit", artifact))
            return artifact
        self._unmade[call.key] = call.label
        self.rows.append(_row(call, state, Artifact(call.stage.name, call.key, Path()), why=why))
        return Artifact(call.stage.name, call.key, self.store.folder(call.stage.name, call.key))


Through = Callable[[Call, bool, Callable[[], Artifact]], None]
"""How the body is called: (call, hit, execute). Prefect's way is in ``tasks.orchestration``; ``directly`` has none."""


def directly(call: Call, hit: bool, execute: Callable[[], Artifact]) -> None:  # noqa: ARG001
    execute()


class Running:
    """Makes what is missing, one stage after the other; calls that may go together, on threads."""

    def __init__(
        self,
        store: Store,
        site: Site,
        scope: Scope,
        display: Display,
        tracker: Tracker,
        through: Through = directly,
        hand_over: Mapping[str, HandOver] = NOWHERE,
    ) -> None:
        self.store, self.site, self.scope, self.display = store, site, scope, display
        self.tracker, self.through, self.hand_over = tracker, through, hand_over
        self.launcher = LAUNCHERS[site.launcher]()
        if isinstance(self.launcher, QueueLauncher):
            self.launcher.say = display.say
        self.rows: list[Row] = []
        store.say = display.say
        self._record = threading.Lock()
        """Held while the tracker, which knows no threads, is written to."""

    def resolve_all(self, calls: Sequence[Call], at_once: int) -> list[Artifact]:
        """All of them, at most ``at_once`` at a time; a failure is raised when the others have ended."""
        first, order = len(self.rows), {call.key: n for n, call in enumerate(calls)}
        with ThreadPoolExecutor(at_once, thread_name_prefix="stage") as pool:
            futures = [pool.submit(copy_context().run, self.resolve, call) for call in calls]
            try:
                while wait(futures, interrupts.POLL_SECONDS).not_done:
                    interrupts.check()
            except BaseException:
                for future in futures:
                    future.cancel()
                interrupts.pass_on()
                raise
        self.rows[first:] = sorted(self.rows[first:], key=lambda row: order[row.key])
        return [future.result() for future in futures]

    def resolve(self, call: Call) -> Artifact:
        interrupts.check()
        self.scope.check(call)
        attempt = self.scope.attempt_at(call)
        verdict = judge(self.store, self.site, call, attempt)
        made: list[Artifact] = []
        begun = time.monotonic()

        def execute() -> Artifact:
            artifact, ran = self._make(call, attempt)
            if ran:
                made.append(artifact)
            return artifact

        try:
            if not verdict.hit:
                self.display.begin(call, verdict.why)
            self.through(call, verdict.hit, execute)
        except BaseException as error:
            why = f"{error}" if isinstance(error, Fault) else f"{type(error).__name__}: {error}"
            row = replace(_row(call, "failed", Artifact(call.stage.name, call.key, Path())), why=why)
            self._close(replace(row, seconds=time.monotonic() - begun))
            raise
        store = placed(self.store, self.site, call)
        manifest = store.manifest(call.stage.name, call.key)
        assert manifest, "a stage that ended well left its manifest"
        artifact = store.artifact(manifest)
        row = _row(call, "completed" if made else "cached", artifact)
        self._close(replace(row, seconds=time.monotonic() - begun if made else 0.0))
        if not made:
            with self._record:
                self.tracker.cached(call.stage.name, call.item, call.key, row.facts)
        return artifact

    def _progress(self, call: Call, done: float, total: float, text: str) -> None:
        interrupts.check()
        self.display.progress(call, done, total, text)

    def _close(self, row: Row) -> None:
        self.rows.append(row)
        self.display.end(row)

    def _make(self, call: Call, attempt: str) -> tuple[Artifact, bool]:
        """The artifact, and whether it had to be made: by the worker that the stage's need is handed to, or here."""
        name, key, store = call.stage.name, call.key, placed(self.store, self.site, call)
        if call.stage.needs not in self.hand_over:
            return self._execute(call, attempt)
        if judge(self.store, self.site, call, attempt).hit or (not attempt and store.put_back(name, key)):
            return self._execute(call, attempt)
        self.hand_over[call.stage.needs](Handed(call, attempt, self.tracker.run_id))
        # Of any attempt: a flow run that was making the same already may have been joined.
        verdict = judge(self.store, self.site, call)
        if not verdict.hit or not verdict.manifest:
            told = f"{call.label} was made by another worker, but is not in the store of this one ({verdict.why})"
            raise BadConfiguration(f"{told}: both need the same REPRO_ROOT")
        with self._record:
            self.tracker.cached(name, call.item, key, verdict.manifest.facts, "completed")
        return store.artifact(verdict.manifest), True

    def _execute(self, call: Call, attempt: str) -> tuple[Artifact, bool]:
        """The artifact, and whether it had to be made: under the key's lock, so that one of several runs makes it."""

        def waiting(holder: str) -> None:
            self.display.say(f"{call.label}: waiting for {holder}, which is making the same")

        name, key, store = call.stage.name, call.key, placed(self.store, self.site, call)
        with _space_faults(self.store.root), held(store.lock_file(name, key), waiting) as lock:
            verdict = judge(self.store, self.site, call, attempt)
            if verdict.hit:
                assert verdict.manifest
                return store.artifact(verdict.manifest), False
            if verdict.damaged:
                aside = store.set_aside(name, key)
                self.display.say(f"{call.label}: {verdict.why}; moved aside to {aside} and made again")
            if not attempt and store.put_back(name, key) and (verdict := judge(self.store, self.site, call)).hit:
                assert verdict.manifest
                return store.artifact(verdict.manifest), False
            inputs = {f"{a.stage}/{a.key}": a.content for a in call.inputs}
            out = store.partial(name, key, (inputs or {"": key}) if call.stage.resume else {}, attempt)
            run_id = ""
            try:
                with self._record:
                    run_id = self.tracker.start_stage(name, call.item, key, call.form)
                begun = time.monotonic()
                context = Surroundings(
                    site=self.site,
                    call=call,
                    run_job=lambda job: self._run_job(call, replace(job, holds=(lock,)), run_id),
                    progress=partial(self._progress, call),
                    tracker=self.tracker,
                    run_id=run_id,
                )
                with surroundings(context):
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
                        "seconds": round(time.monotonic() - begun, 3),
                        "made": origin(),
                    },
                )
            except BaseException as error:
                if not call.stage.resume or not any(out.iterdir()):
                    store.discard(out)
                status = "FAILED" if isinstance(error, Exception) else "KILLED"
                with self._record:
                    self.tracker.finish_stage(run_id, status, {"failure": f"{error}" or type(error).__name__})
                raise
            finally:
                self.store.release()
            with self._record:
                self.tracker.finish_stage(run_id, "FINISHED", facts)
            return artifact, True

    def _run_job(self, call: Call, job: Job, run_id: str) -> None:
        tail = MetricsTail(job.out / "metrics.jsonl")

        def poll() -> None:
            self.store.keep(job.out)
            rows = tail.read()
            if rows:
                self.tracker.log_rows(run_id, rows)
                last = rows[-1]
                self.display.progress(call, last.get("done", 0), last.get("total", 0), describe(rows))

        # A launcher that goes to other nodes is given theirs by whoever shares those out.
        gpus = self.site.gpus if call.stage.needs == "gpu" and self.site.launcher == "local" else ()
        with taken(
            gpus, job.ranks, lambda: self.display.say(f"{call.label}: waiting for a GPU of this machine")
        ) as own:
            self.launcher.run(replace(job, gpus=own.names, holds=(*job.holds, *own.locks)), poll)


def describe(rows: Sequence[dict[str, Any]]) -> str:
    """The newest metrics in words: ``loss 3.21 · dev perplexity 8.4 · 5,210 tokens/s · 3 min left``."""
    newest: dict[str, Any] = {}
    for row in rows:
        newest.update(row)
    words = []
    for name, form in (
        ("loss", "loss {:.3f}"),
        ("dev_perplexity", "dev perplexity {:.2f}"),
        ("tokens_per_second", "{:,.0f} tokens/s"),
        ("sentences_per_second", "{:,.1f} sentences/s"),
    ):
        if isinstance(newest.get(name), int | float):
            words.append(form.format(newest[name]))
    if isinstance(newest.get("seconds_left"), int | float):
        words.append(f"{duration(newest['seconds_left'])} left")
    return " · ".join(words)


def duration(seconds: float) -> str:
    """``48 s``, ``12 min 05 s``, ``3 h 20 min``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


@contextmanager
def _space_faults(root: Path) -> Iterator[None]:
    """Turn a full disk, wherever it is met, into one sentence."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise NoSpace(f"no space left under {root}: free some, or set REPRO_ROOT to another disk") from error


def _row(call: Call, state: State, artifact: Artifact, why: str = "") -> Row:
    path = str(artifact.folder) if state in ("cached", "completed", "hit") else ""
    return Row(call.stage.name, call.item, call.key, state, 0.0, path, dict(artifact.facts), why, call.form)


def _list(labels: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(labels))
