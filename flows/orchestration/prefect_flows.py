"""Defines the pipeline as Prefect flows: ``prefect.yaml`` deploys them, and ``repro run`` calls them if there is work.

Users edit the parameters in Prefect's UI. It makes drop-downs from the types and help from the docstrings. A flow of a
deployment resolves its parameters when it runs. A command has already resolved and planned them: it calls a copy of the
flow in which ``known_value`` returns the plan.
"""

import os
from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.flows import Flow
from prefect.runtime import flow_run
from prefect.states import Completed

from flows.orchestration.duplicates import duplicate_run
from flows.orchestration.flow_parts import (
    OPTIONS,
    OptionalStageName,
    SiteName,
    claim_and_close_dead_runs,
    documented_as,
    flow_of_known,
    known_value,
    scores_markdown,
    summary_line,
)
from flows.reproduce import StageName
from flows.reproduce import reproduce as call_stages
from flows.runner.find_run import without_path
from flows.runner.group import GroupFailed
from flows.runner.outcome import Outcome, cached_outcome
from flows.runner.paper import PaperRequest, ResolvedPaper
from flows.runner.request import RunPlan, RunRequest, make_plan, plan
from flows.runner.run import running
from flows.runs.overrides import SEPARATOR
from flows.tuning.sweep import ResolvedSweep, SweepRequest
from flows.views.terminal import TerminalDisplay, say
from infra.errors import NetworkFault
from infra.tracking.provenance import commit
from tasks.engine.prefect_runner import PrefectRunner, plain_server_errors, publish_markdown


def reproduce_name() -> str:
    parameters = flow_run.parameters
    start = parameters.get("from_stage")
    name = without_path(parameters["run"])
    return f"{name} from {start}" if start else name


@flow(name="reproduce", flow_run_name=reproduce_name, **OPTIONS)
def reproduce(
    run: str = "demo",
    from_stage: OptionalStageName = "",
    until: OptionalStageName = "",
    force: tuple[StageName, ...] = (),
    overrides: tuple[str, ...] = (),
    site: SiteName = "local",
) -> State[Outcome]:
    """Reproduce one run from archives to a registered model version; every stage is cached.

    Args:
        run: A run's name, as `repro show` lists them, or FILE.toml or FILE.py:NAME for one of your own.
        from_stage: Run this stage and all later ones, cached or not. Empty: only missing stages.
        until: The last stage to run. Empty: all stages.
        force: Stages to run again even if they are cached.
        overrides: Fields of the run to change, for example training.updates=200.
        site: Where to compute. With gpu, a worker without one fails.
    """
    claim_and_close_dead_runs(site)
    if "auto-scheduled" in flow_run.tags and not commit():  # only an installed release: a checkout changes
        os.environ.setdefault("REPRO_STRICT", "1")
    if duplicate := duplicate_run(reproduce):
        return Completed(name="Skipped", message=duplicate)
    request = RunRequest(run, from_stage, until, force, overrides, site)
    planned: RunPlan = known_value() or make_plan(request.resolve())
    resolved = planned.resolved
    # Several may run at once. The parent flow prints the settings once, at the start of each.
    label = (resolved.title or run).split(SEPARATOR)[0] if flow_run.parent_flow_run_id else ""
    display = TerminalDisplay(label)
    with running(planned, display, PrefectRunner) as outcome:
        call_stages(resolved.run, resolved.is_modified, planned.initial)
    publish_markdown("scores", scores_markdown(outcome), f"Scores of {outcome.run}")
    return Completed(message=summary_line(outcome), data=outcome)


def run_with_prefect(planned: RunPlan) -> Outcome:
    """Run a plan of this process as a flow; a member of a group runs as a child flow of the group's flow.

    If Prefect's server was lost after all stages finished, returns the outcome from the store.
    """
    resolved = planned.resolved
    request = resolved.request
    try:
        with plain_server_errors():
            outcome: Outcome = flow_of_known(reproduce, planned, resolved.title)(**vars(request))
            return outcome
    except NetworkFault as fault:
        if request.force or request.from_stage or not (done := cached_outcome(plan(request))):
            raise
        say(f"{fault}; but all stages of the run are finished")
        return done


@flow(name="paper", flow_run_name="rows {rows} on {corpus}", **OPTIONS)
@documented_as(PaperRequest)
def paper(
    rows: str = "all",
    corpus: str = "wmt14-ende",
    scale: int = 0,
    at_once: int = 1,
    overrides: tuple[str, ...] = (),
    site: SiteName = "local",
) -> Any:
    return _run_group(paper, PaperRequest(rows, corpus, scale, at_once, overrides, site))


@flow(name="sweep", flow_run_name=lambda: f"sweep of {without_path(flow_run.parameters['run'])}", **OPTIONS)
@documented_as(SweepRequest)
def sweep(
    run: str,
    spaces: tuple[str, ...],
    trials: int = 20,
    on: str = "dev.bleu",
    overrides: tuple[str, ...] = (),
    at_once: int = 1,
    site: SiteName = "local",
) -> Any:
    request = SweepRequest(run, spaces=spaces, trials=trials, on=on, overrides=overrides, at_once=at_once, site=site)
    return _run_group(sweep, request)


def _run_group(group_flow: Flow[..., Any], request: PaperRequest | SweepRequest) -> Any:
    """Run rows of the paper or trials of a sweep in their flow. Raises GroupFailed."""
    claim_and_close_dead_runs(request.site)
    if duplicate := duplicate_run(group_flow):
        return Completed(name="Skipped", message=duplicate)
    resolved: ResolvedPaper | ResolvedSweep = known_value() or request.resolve()
    results = resolved.run(run_with_prefect, say)
    publish_markdown(group_flow.name, results.markdown, results.group.title)
    if results.failure:
        raise GroupFailed(results)
    return results


def group_with_prefect(resolved: ResolvedPaper | ResolvedSweep) -> Any:
    """Run a group as one flow in this process, with a child flow for each member with work. Raises GroupFailed."""
    group_flow = paper if isinstance(resolved, ResolvedPaper) else sweep
    with plain_server_errors():
        return flow_of_known(group_flow, resolved)(**vars(resolved.request))
