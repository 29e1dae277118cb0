"""The pipeline as Prefect flows: ``prefect.yaml`` deploys them and ``repro run`` calls them when there is work.

Users edit the parameters in a form of Prefect's UI, which makes drop-downs from the types and help from the docstrings.
A deployed flow resolves its parameters when it runs. ``run_with_prefect`` and its like make a flow for a request that
this process has resolved and planned already.
"""

import os
from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.flows import Flow
from prefect.runtime import flow_run
from prefect.states import Completed, Failed

from flows.orchestration.duplicates import duplicate_run
from flows.orchestration.flow_parts import (
    OPTIONS,
    OptionalStageName,
    SiteName,
    claim_and_close_dead_runs,
    dispatch_pool,
    parameter_defaults,
    scores_markdown,
    summary_line,
)
from flows.orchestration.notify import tell_of_registration
from flows.orchestration.remote_stage import DeploymentDispatch
from flows.orchestration.single_stage import StageRequest, run_single_stage
from flows.reproduce import StageName
from flows.runner.outcome import Outcome, cached_outcome
from flows.runner.paper import PaperRequest, PaperResults, ResolvedPaper, RowsFailed, run_rows, write_pages
from flows.runner.paper_group import run_group
from flows.runner.request import RunPlan, RunRequest, make_plan, plan
from flows.runner.run import run as run_planned
from flows.runs.overrides import SEPARATOR
from flows.tuning.sweep import ResolvedSweep, SweepRequest, SweepResults, run_sweep
from flows.views.terminal import TerminalDisplay, say
from infra.errors import Fault, NetworkFault
from infra.servers import prefect_states
from infra.site import Site
from infra.tracking.provenance import commit
from tasks.engine.prefect_runner import PrefectTaskWrapper, plain_server_errors, publish_markdown


def reproduce_flow(known: RunPlan | None) -> Flow[..., Any]:
    """The flow of one run; of ``known``, if this process planned it before."""

    def run_name() -> str:
        given = flow_run.parameters
        if known and known.resolved.title:  # a trial, or a row of the paper: several of one run
            return known.resolved.title
        return f"{given['run']} from {given['from_stage']}" if given.get("from_stage") else str(given["run"])

    @flow(name="reproduce", flow_run_name=run_name, **OPTIONS)
    def reproduce(
        run: str = "demo",
        from_stage: OptionalStageName = "",
        until: OptionalStageName = "",
        force: tuple[StageName, ...] = (),
        overrides: tuple[str, ...] = (),
        site: SiteName = "local",
    ) -> State[Outcome]:
        """Reproduce one run, from archives to a registered model version, with each stage cached.

        Args:
            run: A run's name, as `repro show` lists them, or FILE.toml or FILE.py:NAME for one of your own.
            from_stage: Run this stage and all later ones, cached or not. Empty: only missing stages.
            until: The last stage to run. Empty: all stages.
            force: Stages to run again even if they are cached.
            overrides: Fields of the run to change, for example training.updates=200.
            site: Where to compute. With gpu, a worker of another pool dispatches what needs a GPU to the pool gpu.
        """
        claim_and_close_dead_runs(site)
        if "auto-scheduled" in flow_run.tags and not commit():  # an installed release; a checkout is being worked on
            os.environ.setdefault("REPRO_STRICT", "1")
        if duplicate := duplicate_run("reproduce", parameter_defaults(reproduce)):
            return Completed(name="Skipped", message=duplicate)
        planned = known
        if planned is None:
            request = RunRequest(run, from_stage, until, force, overrides, site)
            asked = request.resolve(again=flow_run.run_count > 1)
            if asked.remark:
                say(asked.remark)
            planned = make_plan(asked)
        resolved = planned.resolved
        pool = dispatch_pool(resolved.site)
        task_wrapper = PrefectTaskWrapper(resolved.site.root.absolute() / "prefect-records", ("gpu",) if pool else ())
        # Several may run at once. A title's settings are said once, where the flow that starts them begins each.
        label = (resolved.title or run).split(SEPARATOR)[0] if flow_run.parent_flow_run_id else ""
        display = TerminalDisplay(task_wrapper.progress, label)
        dispatch = {"gpu": DeploymentDispatch(resolved.request, pool, display.say)} if pool else {}
        try:
            outcome = run_planned(planned, display, task_wrapper, dispatch)
        finally:
            task_wrapper.close()
        if outcome.pruned:  # a trial of a sweep
            return Completed(name=prefect_states.PRUNED, message=outcome.pruned, data=outcome)
        for row in outcome.rows:
            if row.stage == "register" and row.state == "completed":
                tell_of_registration(dict(row.facts))
        publish_markdown("scores", scores_markdown(outcome), f"Scores of {outcome.run}")
        return Completed(message=summary_line(outcome), data=outcome)

    return reproduce


def run_with_prefect(planned: RunPlan) -> Outcome:
    """Run a request as a flow in this process, with the configured server or a temporary one."""
    request = planned.resolved.request
    try:
        with plain_server_errors():
            outcome: Outcome = reproduce_flow(planned)(**vars(request))
    except NetworkFault as fault:
        # The store, not the server, says whether the work is done.
        if request.force or request.from_stage or not (done := cached_outcome(plan(request))):
            raise
        say(f"{fault}; but all stages of the run are finished")
        return done
    return outcome


def _stage_run_name() -> str:
    given = flow_run.parameters
    return f"{given['run']}: {given['stage']} {given.get('item', '')}".strip()


@flow(name="stage", flow_run_name=_stage_run_name, **OPTIONS)
def stage(
    run: str,
    stage: StageName,
    key: str,
    item: str = "",
    overrides: tuple[str, ...] = (),
    attempt: str = "",
    site: SiteName = "local",
    parent: str = "",
) -> State[dict[str, Any]]:
    """Make one stage for a run of another worker. All earlier stages must be in the store.

    Args:
        run: The name of that run.
        stage: The stage to make.
        key: The key that the stage has in that run. The flow run fails if it differs here.
        item: The item of a stage with several, for example newstest2013 of translate.
        overrides: Fields of the run to change, for example training.updates=200.
        attempt: Make the stage even if it is cached, unless this attempt made it. Empty: only if it is missing.
        site: Where to compute.
        parent: The MLflow run that is the parent of the stage's run.
    """
    request = StageRequest(run, stage, key, item, overrides, attempt, site, parent)
    task_wrapper = PrefectTaskWrapper(Site.named(site).root.absolute() / "prefect-records", retries=False)
    claim_and_close_dead_runs(site)
    try:
        row = run_single_stage(request, TerminalDisplay(task_wrapper.progress), task_wrapper)
    except Fault as fault:  # flows.orchestration.remote_stage reads its class from the name of the state
        return Failed(name=type(fault).__name__, message=f"{fault}")
    finally:
        task_wrapper.close()
    return Completed(message=f"{request.label} {row.key} is {row.state}", data=row.facts)


def paper_flow(known: ResolvedPaper | None) -> Flow[..., Any]:
    """The flow of rows of the paper; of ``known``, if this process resolved the request before."""

    def run_name() -> str:
        return f"rows {flow_run.parameters['rows']} on {flow_run.parameters['corpus']}"

    @flow(name="paper", flow_run_name=run_name, **OPTIONS)
    def paper(
        rows: str = "all",
        corpus: str = "wmt14-ende",
        scale: int = 0,
        at_once: int = 1,
        overrides: tuple[str, ...] = (),
        site: SiteName = "local",
    ) -> PaperResults | State[PaperResults]:
        """Reproduce rows of the paper's Tables 2 and 3 as separate runs and compare them with the paper's figures.

        Args:
            rows: Names of rows separated by commas, for example base,A1,C2; or all.
            corpus: The name of the runs without the row.
            scale: Divisor of the widths. 0: the corpus decides.
            at_once: Rows that run at the same time.
            overrides: Fields of every row's run to change, for example training.updates=200.
            site: Where to compute. With gpu, a worker without one fails.
        """
        claim_and_close_dead_runs(site)
        if duplicate := duplicate_run("paper", parameter_defaults(paper)):
            return Completed(name="Skipped", message=duplicate)
        resolved = known or PaperRequest(rows, corpus, scale, at_once, overrides, site).resolve()
        found = run_group(resolved, lambda rows_to_run: run_rows(rows_to_run, run_with_prefect, say))
        page = write_pages(found, Site.named(site).root)
        title = resolved.request.title
        publish_markdown("paper", page.with_suffix(".md").read_text(), f"Against the paper: {title}")
        if found.failed:
            raise RowsFailed(found)
        return found

    return paper


def paper_with_prefect(resolved: ResolvedPaper) -> PaperResults:
    """Run rows of the paper as one flow in this process, a child flow for each row with work; raises RowsFailed."""
    found: PaperResults = paper_flow(resolved)(**vars(resolved.request))
    return found


def sweep_flow(known: ResolvedSweep | None) -> Flow[..., Any]:
    """The flow of a sweep; of ``known``, if this process resolved the request before."""

    @flow(name="sweep", flow_run_name=lambda: f"sweep of {flow_run.parameters['run']}", **OPTIONS)
    def hyperparameter_sweep(
        run: str,
        spaces: tuple[str, ...],
        trials: int = 20,
        on: str = "dev.bleu",
        prune: bool = True,
        overrides: tuple[str, ...] = (),
        at_once: int = 1,
        site: SiteName = "local",
        take_over: bool = False,
    ) -> SweepResults:
        """Search for the settings of a run with the best dev score; each trial is a child flow.

        Args:
            run: A run's name, as `repro show` lists them, or FILE.py:NAME for one of your own.
            spaces: Fields and their values, for example training.peak=1e-3..1e-2:log or model.p_drop=0.1,0.2.
            trials: Number of trials, those of earlier calls of the same sweep included.
            on: dev.bleu, dev.chrf or dev.perplexity.
            prune: End a training whose dev curve is worse than the median of the other trials.
            overrides: Fields of every trial's run to change, for example training.updates=200.
            at_once: Trials that run at the same time.
            site: Where to compute. With gpu, a worker of another pool dispatches trainings to the pool gpu.
            take_over: Go on with a sweep that another machine of the bucket left behind.
        """
        claim_and_close_dead_runs(site)
        resolved = known
        if resolved is None:
            request = SweepRequest(run, spaces, trials, on, prune, overrides, at_once, site, take_over)
            resolved = request.resolve()
            if resolved.base.remark:
                say(resolved.base.remark)
        return run_sweep(resolved, lambda trial: run_with_prefect(make_plan(trial)), say)

    return hyperparameter_sweep


def sweep_with_prefect(resolved: ResolvedSweep) -> SweepResults:
    """Run a sweep as a flow in this process, with the configured server or a temporary one."""
    with plain_server_errors():
        found: SweepResults = sweep_flow(resolved)(**vars(resolved.request))
    return found


reproduce = reproduce_flow(None)
paper = paper_flow(None)
hyperparameter_sweep = sweep_flow(None)
