"""The pipeline as Prefect flows: ``prefect.yaml`` deploys them and ``repro run`` calls them when there is work.

Users edit the parameters in a form of Prefect's UI, which takes drop-downs from the types and help from the docstrings.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from inspect import signature
from typing import Any, Literal, TypeVar
from uuid import UUID

from prefect import flow
from prefect.client.schemas.objects import FlowRun, State
from prefect.flows import Flow
from prefect.runtime import flow_run
from prefect.states import Completed, Failed

from flows.orchestration.duplicates import duplicate_run
from flows.orchestration.remote_stage import DeploymentDispatch, current_work_pool
from flows.orchestration.single_stage import StageRequest, run_single_stage
from flows.reproduce import StageName
from flows.runner.interrupted import sweep
from flows.runner.outcome import Outcome, cached_outcome
from flows.runner.paper import PaperRequest, PaperResults, ResolvedPaper, RowsFailed, run_rows, write_pages
from flows.runner.request import ResolvedRun, RunRequest, plan
from flows.runner.run import run as run_resolved
from flows.views.tables import metric_names
from flows.views.terminal import TerminalDisplay, say
from infra.errors import Fault, NetworkFault
from infra.servers import prefect_states
from infra.site import Site
from tasks.engine.prefect_runner import PrefectTaskWrapper, plain_server_errors, publish_markdown

OptionalStageName = Literal["", StageName]
SiteName = Literal["local", "gpu"]
HEADLINE_METRICS = ("bleu", "chrf")
Value = TypeVar("Value")

_resolved_run: ContextVar[ResolvedRun | None] = ContextVar("resolved_run", default=None)
_resolved_paper: ContextVar[ResolvedPaper | None] = ContextVar("resolved_paper", default=None)
"""The value that this process resolved before it called the flow, so that the flow does not resolve it again."""


@contextmanager
def _set(variable: ContextVar[Value | None], value: Value) -> Iterator[None]:
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def _sweep_after_kill(flow: Any, flow_run: FlowRun, state: Any) -> None:  # noqa: ARG001
    """Hook that the worker calls when the process of a flow was killed or cancelled."""
    with suppress(Fault):
        sweep(Site.named(f"{flow_run.parameters.get('site', 'local')}"))


def _claim_and_sweep(site: str) -> None:
    """Label this flow run with our process id, and close runs whose process died."""
    prefect_states.label_process(UUID(flow_run.id))
    sweep(Site.named(site))


def _reproduce_run_name() -> str:
    asked = flow_run.parameters
    return f"{asked['run']} from {asked['from_stage']}" if asked.get("from_stage") else str(asked["run"])


@flow(
    name="reproduce",
    flow_run_name=_reproduce_run_name,
    log_prints=False,
    on_crashed=[_sweep_after_kill],
    on_cancellation=[_sweep_after_kill],
)
def reproduce(
    run: str = "demo",
    from_stage: OptionalStageName = "",
    until: OptionalStageName = "",
    force: tuple[StageName, ...] = (),
    overrides: tuple[str, ...] = (),
    site: SiteName = "local",
) -> State[dict[str, Any]]:
    """Reproduce one run: archives to a registered model version, cached stage by stage.

    Args:
        run: A run's name, as `repro runs` lists them, or FILE.py:NAME for one of your own.
        from_stage: Run this stage and all after it, cached or not. Empty: only what is missing.
        until: The last stage to run. Empty: to the end.
        force: Stages to run again although they are there.
        overrides: Fields of the run, each as in training.updates=200.
        site: Where to compute. With gpu, a worker of another pool leaves what needs one to the pool gpu.
    """
    _claim_and_sweep(site)
    if duplicate := duplicate_run("reproduce", _parameter_defaults(reproduce)):
        return Completed(name="Skipped", message=duplicate)
    request = RunRequest(run, from_stage, until, force, overrides, site)
    resolved = _resolved_run.get()
    if resolved is None or resolved.request != request:  # a worker runs this flow
        resolved = request.resolve(again=flow_run.run_count > 1)
    pool = _dispatch_pool(resolved.site)
    task_wrapper = PrefectTaskWrapper(resolved.site.root.absolute() / "prefect-records", ("gpu",) if pool else ())
    mark = run if flow_run.parent_flow_run_id else ""  # several may run at once
    display = TerminalDisplay(task_wrapper.progress, mark)
    dispatch = {"gpu": DeploymentDispatch(request, pool, display.say)} if pool else {}
    try:
        outcome = run_resolved(resolved, display, task_wrapper, dispatch)
    finally:
        task_wrapper.close()
    publish_markdown("scores", _scores_markdown(outcome), f"Scores of {outcome.run}")
    return Completed(message=_summary_line(outcome), data=outcome.as_json())


def _stage_run_name() -> str:
    asked = flow_run.parameters
    return f"{asked['run']}: {asked['stage']} {asked.get('item', '')}".strip()


@flow(
    name="stage",
    flow_run_name=_stage_run_name,
    log_prints=False,
    on_crashed=[_sweep_after_kill],
    on_cancellation=[_sweep_after_kill],
)
def stage(
    run: str,
    stage: StageName,
    key: str,
    item: str = "",
    overrides: tuple[str, ...] = (),
    attempt: str = "",
    site: SiteName = "local",
    record: str = "",
) -> State[dict[str, Any]]:
    """Make one stage for a run that is carried out elsewhere; everything before it is in the store already.

    Args:
        run: As of the run that is carried out, like overrides and site.
        stage: Which one.
        key: The key that it has there; another here is a fault.
        item: For which of several, as in translate newstest2013.
        overrides: Fields of the run, each as in training.updates=200.
        attempt: Make it although it is there, unless an attempt of this name did. Empty: only if it is missing.
        site: Where to compute.
        record: The MLflow run below which it is shown.
    """
    asked = StageRequest(run, stage, key, item, overrides, attempt, site, record)
    task_wrapper = PrefectTaskWrapper(Site.named(site).root.absolute() / "prefect-records", retries=False)
    _claim_and_sweep(site)
    try:
        row = run_single_stage(asked, TerminalDisplay(task_wrapper.progress), task_wrapper)
    except Fault as fault:  # its class travels as the state's name: see flows.orchestration.remote_stage
        return Failed(name=type(fault).__name__, message=f"{fault}")
    finally:
        task_wrapper.close()
    return Completed(message=f"{asked.label} {row.key} is {row.state}", data=row.facts)


def _dispatch_pool(site: Site) -> str:
    """The pool whose workers make what needs a GPU; empty: this process does."""
    if not site.gpu_pool and site.device != "cuda":
        return ""
    own = current_work_pool()
    pool = site.gpu_pool or ("gpu" if own else "")  # without a worker there is no pool to speak of
    return pool if pool != own else ""


def _parameter_defaults(made: Flow[..., Any]) -> dict[str, Any]:
    return {name: parameter.default for name, parameter in signature(made.fn).parameters.items()}


def run_with_prefect(resolved: ResolvedRun) -> Outcome:
    """Run a request as a flow in this process, by the configured server or Prefect's own temporary one."""
    request = resolved.request
    try:
        with plain_server_errors(), _set(_resolved_run, resolved):
            form: dict[str, Any] = reproduce(  # type: ignore[call-overload]
                request.run, request.from_stage, request.until, request.force, request.overrides, request.site
            )
    except NetworkFault as fault:
        # The store, not the server, says whether the work is done.
        if request.force or request.from_stage or not (done := cached_outcome(plan(request))):
            raise
        say(f"{fault}; the run is done all the same")
        return done
    return Outcome.from_json(form)


def _paper_run_name() -> str:
    asked = flow_run.parameters
    return f"rows {asked['rows']} on {asked['corpus']}"


@flow(
    name="paper",
    flow_run_name=_paper_run_name,
    log_prints=False,
    on_crashed=[_sweep_after_kill],
    on_cancellation=[_sweep_after_kill],
)
def paper(
    rows: str = "all",
    corpus: str = "wmt14-ende",
    scale: int = 0,
    at_once: int = 1,
    overrides: tuple[str, ...] = (),
    site: SiteName = "local",
) -> PaperResults | State[PaperResults]:
    """Reproduce rows of the paper's Tables 2 and 3, each a run of its own, and lay them beside the paper's figures.

    Args:
        rows: Names of rows separated by commas, as base,A1,C2, or all.
        corpus: The runs' name without their row.
        scale: Divides the widths. 0 leaves it to the corpus.
        at_once: Rows that run at the same time.
        overrides: Fields of every row's run, each as in training.updates=200.
        site: Where to compute. With gpu, a worker without one fails.
    """
    _claim_and_sweep(site)
    if duplicate := duplicate_run("paper", _parameter_defaults(paper)):
        return Completed(name="Skipped", message=duplicate)
    asked = PaperRequest(rows, corpus, scale, at_once, overrides, site)
    resolved = _resolved_paper.get()
    if resolved is None or resolved.request != asked:  # a worker runs this flow
        resolved = asked.resolve()
    found = run_rows(resolved, run_with_prefect, say)
    folder = write_pages(found, Site.named(site).root)
    publish_markdown("paper", (folder / "paper.md").read_text(), f"Against the paper: {asked.title}")
    if found.failed:
        raise RowsFailed(found)
    return found


def paper_with_prefect(resolved: ResolvedPaper) -> PaperResults:
    """Rows of the paper as one flow in this process, each row that has work a flow below it; raises RowsFailed."""
    asked = resolved.request
    with _set(_resolved_paper, resolved):
        found: PaperResults = paper(asked.rows, asked.corpus, asked.scale, asked.at_once, asked.overrides, asked.site)  # type: ignore[call-overload]
    return found


def _summary_line(outcome: Outcome) -> str:
    """What a notification says, and the flow run's page: ``demo/3 · dev: bleu 27.31, chrf 55.20 · test: …``."""
    told = {
        name: [f"{n} {card[n]:.2f}" for n in HEADLINE_METRICS if n in card] for name, card in outcome.scores.items()
    }
    cards = [f"{name}: {', '.join(numbers)}" for name, numbers in told.items()]
    return " · ".join([outcome.model_version or f"{outcome.run}: no version registered", *cards])


def _scores_markdown(outcome: Outcome) -> str:
    """The scores and where the model went, as Markdown."""
    lines = [f"# {outcome.run}", "", f"Model version: **{outcome.model_version or 'none registered'}**", ""]
    if outcome.scores:
        names = list(outcome.scores)
        lines += ["| score | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
        for number in metric_names(outcome.scores):
            values = [outcome.scores[name].get(number, "") for name in names]
            cells = [f"{value:.2f}" if isinstance(value, float) else str(value) for value in values]
            lines.append("| " + " | ".join([number, *cells]) + " |")
    reports = [row.path for row in outcome.rows if row.stage == "report" and row.path]
    return "\n".join([*lines, "", *(f"Report: `{path}/report.html`" for path in reports)])
