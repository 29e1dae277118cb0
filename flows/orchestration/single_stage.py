"""One stage of a run that somebody else carries out, made here: what a worker with a GPU is handed.

Comes in: the run, the stage, and the key that it has where the run is carried out. The story is gone through as far as
that stage; everything before it must be in the store. Who waits for it, and how they are told, is not known here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from flows.reproduce import STAGES, reproduce
from flows.runner.request import RunRequest
from flows.runs.initial_weights import initial_weights_of
from infra.errors import BadConfiguration
from infra.site import open_store
from infra.store.local import Artifact
from infra.tracking.tracker import Tracker
from tasks.engine.lookup import look_up
from tasks.engine.planner import Scope, StageResult, StopPipeline
from tasks.engine.progress import Display
from tasks.engine.runner import Runner, TaskWrapper, without_task
from tasks.engine.stage import StageCall, engine


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


class _SingleStageEngine:
    """Takes what comes before one call from the store, makes that one, and goes no further."""

    def __init__(self, runner: Runner, request: StageRequest) -> None:
        self.runner, self.request = runner, request

    def resolve_all(self, calls: Sequence[StageCall], at_once: int) -> list[Artifact]:  # noqa: ARG002
        return [self.resolve(call) for call in calls]

    def resolve(self, call: StageCall) -> Artifact:
        store, site = self.runner.store, self.runner.site
        if (call.stage.name, call.item) == (self.request.stage, self.request.item):
            self._make(call)
        lookup = look_up(store, site, call)
        if lookup.artifact is None:
            place = store.folder(call.stage.name, call.key)
            told = f"{self.request.label} was handed to this worker, but {call.label} is no artifact here: {lookup.why}"
            raise BadConfiguration(f"{told} ({site.remote or place}); both workers need the same REPRO_ROOT")
        return lookup.artifact

    def _make(self, call: StageCall) -> NoReturn:
        if call.key != self.request.key:
            told = f"{self.request.label} has key {call.key} here and {self.request.key} where the run is carried out"
            raise BadConfiguration(f"{told}; both need the same version of this project")
        self.runner.resolve(call)
        raise StopPipeline


def run_single_stage(request: StageRequest, display: Display, task_wrapper: TaskWrapper = without_task) -> StageResult:
    """Make what is asked for, unless it is there; raises the Fault it comes to, BadConfiguration where it cannot be."""
    if request.stage not in STAGES:
        raise BadConfiguration(f"unknown stage {request.stage!r}, known are: {', '.join(STAGES)}")
    resolved = RunRequest(request.run, overrides=request.overrides, site=request.site).resolve()
    run, site = resolved.run, replace(resolved.site, gpu_pool="")
    store = open_store(site)
    scope = Scope(STAGES, forced=frozenset([request.stage] if request.attempt else []), attempt=request.attempt)
    tracker = Tracker(site.tracking, site.root.absolute() / "mlflow-artifacts")
    runner = Runner(store, site, scope, display, tracker, task_wrapper)
    status = "FAILED"
    try:
        if request.record:
            tracker.join(request.record)
        else:
            tracker.start(run.name, f"{run.name} {request.label}", {"site": request.site}, {})
        with engine(_SingleStageEngine(runner, request)):
            reproduce(run, bool(request.overrides), initial_weights_of(run, site, store))
        raise BadConfiguration(f"{request.run} has no stage {request.label!r}")
    except StopPipeline:
        status = "FINISHED"
        return runner.rows[-1]
    except Exception:
        raise
    except BaseException:
        status = "KILLED"
        raise
    finally:
        tracker.finish(status)
