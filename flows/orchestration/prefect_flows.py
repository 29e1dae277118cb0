"""The pipeline as Prefect flows: ``prefect.yaml`` deploys them and ``repro run`` calls them when there is work.

Users edit the parameters in a form of Prefect's UI, which makes drop-downs from the types and help from the docstrings.
A deployed flow resolves its parameters when it runs. ``run_with_prefect`` and its like make a flow for a request that
this process has resolved and planned already.
"""

import os
from collections.abc import Callable
from contextlib import closing
from inspect import signature
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
    scores_markdown,
    summary_line,
)
from flows.orchestration.notify import tell_of_registration
from flows.orchestration.remote_stage import DeploymentDispatch
from flows.orchestration.single_stage import StageRequest, run_single_stage
from flows.reproduce import StageName
from flows.runner.group import GroupFailed
from flows.runner.outcome import Outcome, cached_outcome
from flows.runner.paper import PaperRequest, ResolvedPaper
from flows.runner.request import RunPlan, RunRequest, make_plan, plan
from flows.runner.run import run as run_planned
from flows.runs.overrides import SEPARATOR
from flows.tuning.sweep import ResolvedSweep, SweepRequest
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
        if duplicate := duplicate_run(reproduce):
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
        with closing(task_wrapper):
            outcome = run_planned(planned, display, task_wrapper, dispatch)
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


def form_flow(kind: type, name: str, run_name: str | Callable[[], str], body: Callable[[Any], Any]) -> Flow[..., Any]:
    """A flow whose parameters and their help are the fields of a request and its docstring."""

    def run_request(*arguments: Any, **named: Any) -> Any:
        request = kind(*arguments, **named)
        claim_and_close_dead_runs(request.site)
        return body(request)

    fields = signature(kind)
    types = {"site": SiteName, "stage": StageName}
    parameters = [p.replace(annotation=types.get(p.name, p.annotation)) for p in fields.parameters.values()]
    run_request.__name__ = name
    run_request.__doc__ = kind.__doc__
    run_request.__dict__["__signature__"] = fields.replace(parameters=parameters, return_annotation=Any)
    return flow(name=name, flow_run_name=run_name, **OPTIONS)(run_request)


def stage_run_name() -> str:
    given = flow_run.parameters
    return f"{given['run']}: {given['stage']} {given.get('item', '')}".strip()


def make_stage(request: StageRequest) -> State[dict[str, Any]]:
    """Make one stage for a run of another worker."""
    task_wrapper = PrefectTaskWrapper(Site.named(request.site).root.absolute() / "prefect-records", retries=False)
    try:
        with closing(task_wrapper):
            row = run_single_stage(request, TerminalDisplay(task_wrapper.progress), task_wrapper)
    except Fault as fault:  # flows.orchestration.remote_stage reads its class from the name of the state
        return Failed(name=type(fault).__name__, message=f"{fault}")
    return Completed(message=f"{request.label} {row.key} is {row.state}", data=row.facts)


def group_flow(
    kind: type[PaperRequest | SweepRequest], known: ResolvedPaper | ResolvedSweep | None = None
) -> Flow[..., Any]:
    """The flow of several runs; of ``known``, if this process resolved the request before."""

    def run_group(request: PaperRequest | SweepRequest) -> Any:
        if duplicate := duplicate_run(made):
            return Completed(name="Skipped", message=duplicate)
        resolved = known or request.resolve()
        if resolved.remark and not known:
            say(resolved.remark)
        found = resolved.run(run_with_prefect, say)
        publish_markdown(kind.flow, found.markdown, found.group.title)
        if found.failure:
            raise GroupFailed(found)
        return found

    made = form_flow(kind, kind.flow, kind.flow_run_name, run_group)
    return made


def group_with_prefect(resolved: ResolvedPaper | ResolvedSweep) -> Any:
    """Run a group as one flow in this process, a child flow for each member with work; raises GroupFailed."""
    with plain_server_errors():
        return group_flow(type(resolved.request), resolved)(**vars(resolved.request))


reproduce = reproduce_flow(None)
stage = form_flow(StageRequest, "stage", stage_run_name, make_stage)
paper = group_flow(PaperRequest)
sweep = group_flow(SweepRequest)
