"""A request to run or plan, carried out: which run, from where to where, at which site; and its outcome."""

import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flows.reproduce import STAGES, reproduce
from flows.runner import records
from flows.runner.interrupted import attempt_to_resume
from flows.runs import RUNS, Run
from flows.runs.initial_weights import InitialWeights, initial_weights_of
from flows.runs.overrides import override
from flows.runs.paper_rows import parse_run_name
from infra.errors import BadConfiguration, Fault
from infra.site import Site, open_store
from infra.store.local import Store
from infra.tracking.tracker import Tracker
from tasks.engine.keys import canonical, differences
from tasks.engine.planner import Planner, Scope, StageResult, StopPipeline
from tasks.engine.progress import Display
from tasks.engine.runner import Runner, TaskWrapper, without_task
from tasks.engine.stage import NO_DISPATCH, Dispatch, engine

PROJECT = str(Path(__file__).resolve().parents[2])
"""The folder that this project's packages lie in."""


@dataclass(frozen=True)
class RunRequest:
    """What somebody asked for, in words that travel (a command line, a deployment's parameters)."""

    run: str
    from_stage: str = ""
    until: str = ""
    force: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    site: str = "local"

    def resolve(self) -> tuple[Run, Site, Scope]:
        """The values behind the words; raises BadConfiguration for a word that is not known."""
        for name in filter(None, (self.from_stage, self.until, *self.force)):
            if name not in STAGES:
                raise BadConfiguration(f"unknown stage {name!r}, known are: {', '.join(STAGES)}")
        behind = STAGES[STAGES.index(self.from_stage) :] if self.from_stage else ()
        for name in filter(None, (self.from_stage, *self.force)):
            if self.until and STAGES.index(name) > STAGES.index(self.until):
                raise BadConfiguration(
                    f"stage {name!r} is to run, but comes after the last one asked for, {self.until!r}"
                )
        scope = Scope(STAGES, self.until, frozenset(self.force) | frozenset(behind))
        return override(find_run(self.run), self.overrides), Site.named(self.site), scope


@dataclass
class Outcome:
    """What came of a request."""

    run: str
    rows: list[StageResult] = field(default_factory=list)
    failure: str = ""

    @property
    def scores(self) -> dict[str, dict[str, Any]]:
        """The card of each evaluation set."""
        return {row.item: dict(row.facts) for row in self.rows if row.stage == "score" and row.facts}

    @property
    def model_version(self) -> str:
        """``name/number`` of the registered version, or empty."""
        made = [f"{r.facts['name']}/{r.facts['version']}" for r in self.rows if r.stage == "register" and r.facts]
        return made[-1] if made else ""

    def as_json(self) -> dict[str, Any]:
        names = ("stage", "item", "key", "state", "seconds", "path", "facts", "why")
        stages = [{name: getattr(row, name) for name in names} for row in self.rows]
        return {"run": self.run, "stages": stages, "scores": self.scores, "model_version": self.model_version}

    @staticmethod
    def from_json(form: Mapping[str, Any]) -> "Outcome":
        return Outcome(form["run"], [StageResult(**row) for row in form["stages"]])


class StageFailed(Exception):
    """A stage failed; ``outcome`` says which and what was done before it."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.failure)
        self.outcome = outcome


def find_run(name: str) -> Run:
    """A run of ``flows.runs`` by name, a row of the paper on some corpus, or ``my_runs.py:NAME`` from a file."""
    if ":" in name:
        return _run_from_file(*name.rsplit(":", 1))
    found = RUNS.get(name) or parse_run_name(name)
    if not found:
        others = "rows of the paper elsewhere, as demo-paper-A1-scale8; FILE.py:NAME for your own"
        raise BadConfiguration(f"unknown run {name!r}, known are: {', '.join(RUNS)}; {others}")
    return found


def plan(request: RunRequest) -> Outcome:
    """What a run would do, by looking alone; ``why`` also says what changed since the last run of that name."""
    asked, site, scope = request.resolve()
    store = open_store(site)
    return _plan(
        request,
        asked,
        site,
        _resume_attempt(scope, request, asked, site, store),
        initial_weights_of(asked, site),
        store,
    )


def _resume_attempt(
    scope: Scope, request: RunRequest, run: Run, site: Site, store: Store, again: bool = False
) -> Scope:
    """Decide whether forced stages begin anew, or go on in the attempt of the same request that was cut off."""
    if not scope.forced:
        return scope
    store.receive(records.record_folder(run.name), newest=1)
    before = attempt_to_resume(site, run.name, vars(request), again=again)
    return replace(scope, attempt=before.attempt) if before and before.attempt else scope


def _plan(
    request: RunRequest, run: Run, site: Site, scope: Scope, initial: InitialWeights | None, store: Store
) -> Outcome:
    planner = Planner(store, site, scope)
    with engine(planner), _until_stopped():
        reproduce(run, bool(request.overrides), initial)
    store.receive(records.record_folder(run.name), newest=1)
    before = records.last_arguments(site.root, run.name)
    return Outcome(run.name, [_with_changes(row, before, initial) for row in planner.rows])


def cached_outcome(planned: Outcome) -> Outcome | None:
    """The outcome of a run in which every stage is a hit; None where there is work."""
    if any(row.state != "hit" for row in planned.rows):
        return None
    return Outcome(planned.run, [replace(row, state="cached") for row in planned.rows])


def conclude(request: RunRequest, done: Outcome, say: Callable[[str], None]) -> None:
    """Record that a request is done that was cut off after its last stage, so that nobody goes on with it again."""
    asked, site, _ = request.resolve()
    if before := attempt_to_resume(site, asked.name, vars(request)):
        _write_record(open_store(site), asked, request, done.rows, "FINISHED", datetime.now(UTC), before.attempt, say)


def run(
    request: RunRequest,
    display: Display,
    task_wrapper: TaskWrapper = without_task,
    dispatch: Mapping[str, Dispatch] = NO_DISPATCH,
    *,
    again: bool = False,
) -> Outcome:
    """Carry the request out; raises StageFailed, or BadConfiguration before anything ran.

    ``again``: whoever asked for it before asks for it again, as in a retry of a flow run. What is forced goes on then
    where that stopped, even if it failed; otherwise only where it was cut off.
    """
    resolved, site, new = request.resolve()
    initial, started = initial_weights_of(resolved, site), datetime.now(UTC)
    tracker = Tracker(site.tracking, site.root.absolute() / "mlflow-artifacts")
    store = open_store(site)
    scope = _resume_attempt(new, request, resolved, site, store, again)
    attempt = scope.attempt if scope.forced else ""
    if scope != new:
        display.say("the same request was cut off before: its forced stages go on from there")
    runner = Runner(store, site, scope, display, tracker, task_wrapper, dispatch)
    outcome = Outcome(resolved.name, runner.rows)
    status = "FAILED"
    try:
        tags = {
            "overrides": " ".join(request.overrides),
            "site": request.site,
            "start": initial.version if initial else "",
        }
        settings = ("vocabulary", "sharding", "model", "training", "averaging", "decoding")
        planned = _plan(request, resolved, site, scope, initial, store)
        # What a run is about to use is known to others from its beginning, so that nobody takes it for waste.
        _write_record(store, resolved, request, planned.rows, "RUNNING", started, attempt, display.say)
        if cached_outcome(planned) is None:  # a run that makes nothing is not worth a record in MLflow
            display.say(f"jobs run {site.place}")
            tracker.start(
                resolved.name, resolved.name, tags, canonical({name: getattr(resolved, name) for name in settings})
            )
        with engine(runner), _until_stopped():
            reproduce(resolved, bool(request.overrides), initial)
        status = "FINISHED"
    except Exception as error:
        failed = next((row for row in runner.rows if row.state == "failed"), None)
        label = f"{failed.stage} {failed.item}".strip() if failed else "run"
        reason = str(error) if isinstance(error, Fault) else f"{type(error).__name__}: {error}"
        outcome.failure = f"{label} failed: {reason}"
        raise StageFailed(outcome) from error
    except BaseException:
        status = "KILLED"
        raise
    finally:
        tracker.finish(status)
        _write_record(store, resolved, request, runner.rows, status, started, attempt, display.say)
    return outcome


def stage_folder(row: StageResult, site: Site) -> Path:
    """The folder of a stage that is done, fetched if the store is remote."""
    store = open_store(site)
    manifest = store.manifest(row.stage, row.key)
    return store.artifact(manifest).path() if manifest else Path(row.path)


def _write_record(
    store: Store,
    run: Run,
    request: RunRequest,
    rows: list[StageResult],
    status: str,
    started: datetime,
    attempt: str,
    say: Callable[[str], None],
) -> None:
    try:
        store.send(records.write(store.root, run.name, vars(request), rows, status, started, attempt))
    except (OSError, Fault) as error:
        say(f"this run left no record: {error}")


@contextmanager
def _until_stopped() -> Iterator[None]:
    try:
        yield
    except StopPipeline:
        return


def _with_changes(
    row: StageResult, before: Mapping[tuple[str, str], Any], initial: InitialWeights | None
) -> StageResult:
    if row.state == "hit":
        return row
    begins = [f"begins with {initial.version}"] if initial and row.stage == "train" else []
    changed = differences(row.form, before.get((row.stage, row.item), row.form))
    return replace(row, why="; ".join([row.why, *begins, *changed]))


def _run_from_file(file: str, name: str) -> Run:
    path = Path(file)
    if not path.is_file():
        raise BadConfiguration(f"no file {file!r} to take the run {name!r} from")
    spec = importlib.util.spec_from_file_location(f"_runs_of_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise BadConfiguration(f"{file!r} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    # The file may import its neighbours. They come last, behind this project's packages (which an editable install
    # finds only after all of sys.path), and stay, because worker processes inherit the list and import them by name.
    sys.path += [folder for folder in (PROJECT, str(path.parent.absolute())) if folder not in sys.path]
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise BadConfiguration(f"{file}: {type(error).__name__}: {error}") from error
    found = getattr(module, name, None)
    if not isinstance(found, Run):
        known = [other for other, value in vars(module).items() if isinstance(value, Run)]
        raise BadConfiguration(f"{file} has no run {name!r}; its runs are: {', '.join(known) or 'none'}")
    return found
