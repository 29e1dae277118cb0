"""The story as a Prefect flow: what ``prefect.yaml`` deploys and what ``repro run`` calls when there is work."""

from contextlib import suppress
from typing import Any
from uuid import UUID

from prefect import flow
from prefect.client.schemas.objects import FlowRun
from prefect.runtime import flow_run

from flows import running
from flows.display import TerminalDisplay, measures, say
from flows.paper import Paper, PaperRequest, RowsFailed, carry_out_rows, keep
from flows.running import Outcome, Request
from flows.unfinished import sweep
from infra import prefect_states
from infra.faults import Fault, NetworkFault
from infra.site import Site
from tasks.orchestration import PrefectRunner, publish, told_plainly

NEEDS = {"train": "gpu", "translate": "gpu"}


FLOWS = ("reproduce", "paper")


def _after_a_kill(flow: Any, flow_run: FlowRun, state: Any) -> None:  # noqa: ARG001
    """Called by the worker whose flow process was killed or cancelled: nothing of it stays "Running"."""
    prefect_states.close_task_runs(flow_run.id, frozenset(), frozenset())
    with suppress(Fault):
        sweep(Site.named(f"{flow_run.parameters.get('site', 'local')}"))


def close_abandoned_runs() -> int:
    """Mark Crashed what Prefect's server holds to be running though its process here is gone; gives their number."""
    return prefect_states.close_abandoned(FLOWS)


def _begin(site: str) -> None:
    """Be known as this process's, and end what others were killed at."""
    prefect_states.hold(UUID(flow_run.id))
    _sweep(site)


def _sweep(site: str) -> None:
    close_abandoned_runs()
    sweep(Site.named(site))


def _name() -> str:
    asked = flow_run.parameters
    return f"{asked['run']} from {asked['from_stage']}" if asked.get("from_stage") else str(asked["run"])


@flow(
    name="reproduce",
    flow_run_name=_name,
    log_prints=False,
    on_crashed=[_after_a_kill],
    on_cancellation=[_after_a_kill],
)
def reproduce(
    run: str = "demo",
    from_stage: str = "",
    until: str = "",
    force: list[str] | None = None,
    overrides: list[str] | None = None,
    site: str = "local",
) -> dict[str, Any]:
    """Reproduce one run: archives to a registered model version, cached stage by stage."""
    request = Request(run, from_stage, until, tuple(force or ()), tuple(overrides or ()), site)
    runner = PrefectRunner(Site.named(site).root.absolute() / "prefect-records", NEEDS)
    mark = run if flow_run.parent_flow_run_id else ""  # several may run at once
    _begin(site)
    try:
        outcome = running.run(request, TerminalDisplay(runner.progress, mark), runner)
    finally:
        runner.close()
        _sweep(site)  # of whom this run took a stage over, meanwhile
    publish("scores", _card(outcome), f"Scores of {outcome.run}")
    return outcome.as_json()


def run_with_prefect(request: Request) -> Outcome:
    """Run a request as a flow in this process, by the configured server or Prefect's own temporary one."""
    try:
        with told_plainly():
            form = reproduce(
                request.run,
                request.from_stage,
                request.until,
                list(request.force),
                list(request.overrides),
                request.site,
            )
    except NetworkFault as fault:
        # Whether the work is done is not the server's to say.
        if request.force or request.from_stage or not (done := running.nothing_to_do(running.plan(request))):
            raise
        say(f"{fault}; the run is done all the same")
        return done
    return Outcome.from_json(form)


def _rows() -> str:
    asked = flow_run.parameters
    return f"rows {asked['rows']} on {asked['corpus']}"


@flow(name="paper", flow_run_name=_rows, log_prints=False, on_crashed=[_after_a_kill], on_cancellation=[_after_a_kill])
def paper(
    rows: str = "all",
    corpus: str = "wmt14-ende",
    scale: int = 0,
    at_once: int = 1,
    overrides: list[str] | None = None,
    site: str = "local",
) -> Paper:
    """Reproduce rows of the paper's Tables 2 and 3, each a run of its own, and lay them beside the paper's figures."""
    asked = PaperRequest(rows, corpus, scale, at_once, tuple(overrides or ()), site)
    _begin(site)
    found = carry_out_rows(asked, run_with_prefect, say)
    folder = keep(found, Site.named(site).root)
    publish("paper", (folder / "paper.md").read_text(), f"Against the paper: {asked.title}")
    if found.failed:
        raise RowsFailed(found)
    return found


def paper_with_prefect(asked: PaperRequest) -> Paper:
    """Rows of the paper as one flow in this process, each row that has work a flow below it; raises RowsFailed."""
    found: Paper = paper(asked.rows, asked.corpus, asked.scale, asked.at_once, list(asked.overrides), asked.site)
    return found


def _card(outcome: Outcome) -> str:
    """The scores and where the model went, as Markdown."""
    lines = [f"# {outcome.run}", "", f"Model version: **{outcome.model_version or 'none registered'}**", ""]
    if outcome.scores:
        names = list(outcome.scores)
        lines += ["| score | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
        for number in measures(outcome.scores):
            values = [outcome.scores[name].get(number, "") for name in names]
            cells = [f"{value:.2f}" if isinstance(value, float) else str(value) for value in values]
            lines.append("| " + " | ".join([number, *cells]) + " |")
    reports = [row.path for row in outcome.rows if row.stage == "report" and row.path]
    return "\n".join([*lines, "", *(f"Report: `{path}/report.html`" for path in reports)])
