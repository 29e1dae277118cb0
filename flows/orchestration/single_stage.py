"""One stage of a run that somebody else carries out, made here: what a worker with a GPU is handed.

Comes in: the run, the stage, and the key that it has where the run is carried out. The story is gone through as far as
that stage; everything before it must be in the store. Who waits for it, and how they are told, is not known here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from flows.reproduce import STAGES, reproduce
from flows.runner.run import find_run
from flows.runs.initial_weights import start_of
from flows.runs.overrides import override
from infra.errors import BadConfiguration
from infra.site import Site, store_at
from infra.store.local import Artifact
from infra.tracking.tracker import Tracker
from tasks.engine.planner import Enough, Row, Scope, judge, placed
from tasks.engine.progress import Display
from tasks.engine.runner import Running, Through, directly
from tasks.engine.stage import Call, engine


@dataclass(frozen=True)
class StageRequest:
    """What is asked for, in words that travel.

    ``attempt``: the one that must have made it (``tasks.engine.runner``), "" where it is not forced. ``record``: the
    MLflow run below which it is shown, "" for none.
    """

    run: str
    stage: str
    key: str
    item: str = ""
    overrides: tuple[str, ...] = ()
    attempt: str = ""
    site: str = "local"
    record: str = ""

    @property
    def label(self) -> str:
        return f"{self.stage} {self.item}".strip()


class _Only:
    """Takes what comes before one call from the store, makes that one, and goes no further."""

    def __init__(self, running: Running, asked: StageRequest) -> None:
        self.running, self.asked = running, asked

    def resolve_all(self, calls: Sequence[Call], at_once: int) -> list[Artifact]:  # noqa: ARG002
        return [self.resolve(call) for call in calls]

    def resolve(self, call: Call) -> Artifact:
        store, site = self.running.store, self.running.site
        if (call.stage.name, call.item) == (self.asked.stage, self.asked.item):
            self._make(call)
        verdict = judge(store, site, call)
        if not verdict.hit or not verdict.manifest:
            place = store.folder(call.stage.name, call.key)
            told = f"{self.asked.label} was handed to this worker, but {call.label} is no artifact here: {verdict.why}"
            raise BadConfiguration(f"{told} ({site.remote or place}); both workers need the same REPRO_ROOT")
        return placed(store, site, call).artifact(verdict.manifest)

    def _make(self, call: Call) -> NoReturn:
        if call.key != self.asked.key:
            told = f"{self.asked.label} has key {call.key} here and {self.asked.key} where the run is carried out"
            raise BadConfiguration(f"{told}; both need the same version of this project")
        self.running.resolve(call)
        raise Enough


def make_one(asked: StageRequest, display: Display, through: Through = directly) -> Row:
    """Make what is asked for, unless it is there; raises the Fault it comes to, BadConfiguration where it cannot be."""
    if asked.stage not in STAGES:
        raise BadConfiguration(f"unknown stage {asked.stage!r}, known are: {', '.join(STAGES)}")
    run, site = override(find_run(asked.run), asked.overrides), replace(Site.named(asked.site), gpu_pool="")
    scope = Scope(STAGES, forced=frozenset([asked.stage] if asked.attempt else []), attempt=asked.attempt)
    tracker = Tracker(site.tracking, site.root.absolute() / "mlflow-artifacts")
    running = Running(store_at(site), site, scope, display, tracker, through)
    status = "FAILED"
    try:
        if asked.record:
            tracker.join(asked.record)
        else:
            tracker.start(run.name, f"{run.name} {asked.label}", {"site": asked.site}, {})
        with engine(_Only(running, asked)):
            reproduce(run, bool(asked.overrides), start_of(run, site))
        raise BadConfiguration(f"{asked.run} has no stage {asked.label!r}")
    except Enough:
        status = "FINISHED"
        return running.rows[-1]
    except Exception:
        raise
    except BaseException:
        status = "KILLED"
        raise
    finally:
        tracker.finish(status)
