"""Runs as ``repro run`` makes them, with a record, and ``repro gc --delete`` beside them; real code, but no tracker.

All runs have one name, so that a new one may leave the artifacts of an older one to ``gc``.
"""

import contextlib
import json
from collections.abc import Callable, Iterator
from datetime import datetime, tzinfo
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from unittest.mock import patch

from toy_stages import Quiet, Untracked

from flows.inspection import garbage_collection
from flows.inspection.garbage_collection import find_garbage, remove_garbage
from flows.runner.outcome import Outcome, StageFailed, cached_outcome
from flows.runner.records import start_time
from flows.runner.request import ResolvedRun, RunPlan, RunRequest
from flows.runner.run import RunRecord, running
from flows.runs import Run
from infra.site import Site
from infra.store.local import LocalStore
from simulated.machine import Machine, Violation
from tasks.engine.planner import Planner
from tasks.engine.stage import engine

NAME = "demo"
Names = set[tuple[str, str]]


def run(planner: Planner, build: Callable[[], object]) -> None:
    """Plan a run and make what is missing, as ``flows.orchestration.dispatch`` does. Raises what made it fail."""

    with engine(planner):
        build()
    named = cast("Run", SimpleNamespace(name=NAME, expect=()))
    resolved = ResolvedRun(RunRequest(NAME), named, planner.site, planner.scope)
    outcome = Outcome(NAME, planner.rows)
    started = start_time(planner.site.root, NAME)
    plan = RunPlan(resolved, started, planner.store, planner.scope, None, None, outcome, planner.lookups)
    if done := cached_outcome(outcome):
        RunRecord(plan, lambda _: None).conclude(done)
        return
    try:
        with running(plan, Quiet()):
            build()
    except StageFailed as failed:
        raise failed.__cause__ or failed from None


def collect(site: Site) -> None:
    """``repro gc --delete``."""
    remove_garbage(site, find_garbage(site))


@contextlib.contextmanager
def observed(
    machine: Machine, root: Path, finished: Callable[[], Names], forget: Callable[[str, str], None]
) -> Iterator[None]:
    """Give records the simulated clock, and check that ``gc`` removes nothing that is needed when it locks it.

    ``finished`` gives what the last run used that ended alone; ``forget`` is called before an artifact is removed.
    """
    real_lock, real_remove, needed = garbage_collection.try_file_lock, LocalStore.remove, set()

    class Clock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> "Clock":
            return cls.fromtimestamp(machine.time(), tz)

    def alive(number: str) -> str:
        return "alive" if any(f"{id(each)}" == number and not each.dead for each in machine.processes) else "gone"

    def identity() -> str:
        return f"{id(machine.current)}"

    @contextlib.contextmanager
    def lock(path: Path) -> Iterator[bool]:
        with real_lock(path) as free:
            needed.clear()
            needed.update(machine.observe(lambda: _needed(root, alive)), finished())
            yield free

    def remove(store: LocalStore, stage: str, key: str) -> None:
        if (stage, key) in needed:
            raise Violation(f"gc removes {stage}, which a run needs")
        forget(stage, key)
        real_remove(store, stage, key)

    with (
        patch.object(garbage_collection, "try_file_lock", lock),
        patch("flows.runner.recorded_runs.process_state", alive),
        patch.object(LocalStore, "remove", remove),
        patch("flows.runner.run.Tracker", Untracked),
        patch("flows.runner.run._start_tracking", lambda tracker, resolved: None),
        patch("flows.runner.records.datetime", Clock),
        patch("flows.runner.records.process_identity", identity),
        patch("flows.runner.records.user", lambda: "somebody"),
        patch("flows.runner.records.commit", lambda: "c0ffee"),
    ):
        yield


def _needed(root: Path, alive: Callable[[str], str]) -> Names:
    """What is named by the newest record, by those of runs at work, and of each stage by the newest finished record."""
    records = [json.loads(path.read_text()) for path in sorted(root.glob("runs/*/*.json"))]
    at_work = [each for each in records if each["outcome"] == "RUNNING" and alive(each["process"]) == "alive"]
    finished = [each["stages"] for each in records if each["outcome"] == "FINISHED"]
    newest = {row["stage"]: stages for stages in finished for row in stages}
    chosen = [*at_work, *records[-1:]]
    needed = {(row["stage"], row["key"]) for record in chosen for row in record["stages"]}
    return needed | {(stage, row["key"]) for stage, rows in newest.items() for row in rows if row["stage"] == stage}
