"""Make one stage for a run of another worker, for example on a worker with a GPU.

Replays the DAG up to that stage: earlier stages must be hits, and the stage must have the key that the other worker
computed.
"""

from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, replace

from flows.reproduce import STAGES, reproduce
from flows.runner.artifact_names import check_stage
from flows.runner.request import RunRequest, beginning_of
from flows.runs.synthetic import COUNTED_AS
from infra.errors import BadConfiguration
from infra.site import open_store
from infra.store.store import Artifact
from infra.tracking.tracker import Tracker, ending
from tasks.engine.lookup import Miss, look_up, remedy
from tasks.engine.planner import Attempt, Scope, StageResult, StopPipeline
from tasks.engine.progress import Display
from tasks.engine.run_settings import RunSettings
from tasks.engine.runner import Runner
from tasks.engine.stage import Engine, StageCall, engine
from tasks.reporting.stage_files import stage_files


@dataclass(frozen=True)
class StageRequest:
    """A stage of a run of another worker; the fields are parameters of the flow ``stage`` (``prefect_flows``)."""

    run: str
    stage: str
    key: str
    item: str = ""
    overrides: tuple[str, ...] = ()
    attempt: str = ""
    site: str = "local"
    parent: str = ""

    @property
    def label(self) -> str:
        return f"{self.stage} {self.item}".strip()


@dataclass(frozen=True)
class _SingleStageEngine(Engine):
    """Takes earlier stages from the store, makes the requested one, and stops the pipeline."""

    runner: Runner
    request: StageRequest

    def resolve(self, call: StageCall) -> Artifact:
        store = self.runner.settings.store
        site = self.runner.settings.site
        if (call.stage.name, call.item) == (self.request.stage, self.request.item):
            if call.key != self.request.key:
                message = f"{self.request.label} has key {call.key} here and {self.request.key} at the other worker"
                raise BadConfiguration(f"{message}; install the same version of this project for both")
            self.runner.resolve(call)
            raise StopPipeline
        lookup = look_up(store, site, call)
        if isinstance(lookup, Miss):
            place = site.remote or store.folder(call.stage.name, call.key)
            missing = f"{call.label}, which has no artifact here: {lookup} ({place})"
            raise BadConfiguration(f"{self.request.label} needs {missing}; {remedy(lookup)}")
        return lookup.artifact


def run_single_stage(
    request: StageRequest, display: Display, make_runner: Callable[[RunSettings], Runner] = Runner
) -> StageResult:
    """Make the stage unless it is cached; raises its Fault, or BadConfiguration for a request that does not fit."""
    check_stage(request.stage)
    resolved = RunRequest(request.run, overrides=request.overrides, site=request.site).resolve()
    run = resolved.run
    site = replace(resolved.site, gpu_pool="")
    store = open_store(site)
    scope = Scope(STAGES, counted_as=COUNTED_AS)
    if request.attempt:
        stage = scope.stage_of(request.stage, request.item)
        scope = replace(scope, attempt=Attempt(frozenset([stage]), request.attempt))
    tracker = Tracker(site.tracking, site.root.absolute() / "mlflow-artifacts")
    runner = make_runner(RunSettings(store, site, scope, display, tracker, files=stage_files))
    with closing(runner), ending(tracker):
        if request.parent:
            tracker.join(request.parent)
        else:
            tracker.start(run.name, f"{run.name} {request.label}", {"site": request.site}, {})
        with engine(_SingleStageEngine(runner, request)), suppress(StopPipeline):
            reproduce(run, resolved.is_modified, beginning_of(run, site, store))
            raise BadConfiguration(f"{request.run} has no stage {request.label!r}")
    return runner.rows[-1]
