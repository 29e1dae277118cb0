"""Parts of the flows in ``prefect_flows``: hooks after a kill, the claim of a flow run, texts for Prefect's UI."""

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal, TypeVar
from uuid import UUID
from weakref import WeakKeyDictionary

from prefect.client.schemas.objects import FlowRun
from prefect.context import FlowRunContext
from prefect.flows import Flow
from prefect.runtime import flow_run

from flows.reproduce import StageName
from flows.runner.interrupted import close_dead_runs
from flows.runner.outcome import Outcome
from flows.views.tables import score_rows
from infra.errors import BadConfiguration, Fault
from infra.servers import prefect_states
from infra.site import Site
from infra.tracking.model_version import headline
from infra.tracking.run_description import table
from model.metric_names import CHRF

OptionalStageName = Literal["", StageName]
SiteName = Literal["local", "gpu"]
F = TypeVar("F", bound=Callable[..., Any])


def close_dead_runs_after_kill(flow: Any, flow_run: FlowRun, state: Any) -> None:  # noqa: ARG001
    """Close dead runs: the worker calls this hook after a flow's process was killed or cancelled."""
    with suppress(Fault):
        close_dead_runs(Site.named(f"{flow_run.parameters.get('site', 'local')}"))


def claim_and_close_dead_runs(site: str) -> None:
    """Label this flow run with this process's id, and close runs whose process died.

    Raises BadConfiguration in a worker without a root: the worker removes the working folder when the flow ends."""
    if known_value() is None and not os.environ.get("REPRO_ROOT"):
        raise BadConfiguration("the worker's environment lacks REPRO_ROOT: start the worker with one")
    prefect_states.label_process(UUID(flow_run.id))
    close_dead_runs(Site.named(site))


OPTIONS: dict[str, Any] = {
    "log_prints": False,
    "on_crashed": [close_dead_runs_after_kill],
    "on_cancellation": [close_dead_runs_after_kill],
}
"""Options of every flow."""


def documented_as(request: type) -> Callable[[F], F]:
    """Give a flow the docstring of its request class, so that Prefect's UI shows the help of the command line."""

    def document(body: F) -> F:
        body.__doc__ = request.__doc__
        return body

    return document


_known: WeakKeyDictionary[Flow[..., Any], Any] = WeakKeyDictionary()
"""Resolved plans of commands, by the flow object of the call.

Prefect stores the parameters of a flow run as JSON, so a plan cannot be one of them.
"""


def flow_of_known(flow: Flow[..., Any], value: Any, run_name: str = "") -> Flow[..., Any]:
    """Copy ``flow`` for one call whose parameters this process has already resolved to ``value``."""
    copy = flow.with_options(flow_run_name=(lambda: run_name) if run_name else None)
    _known[copy] = value
    return copy


def known_value() -> Any:
    """Return the ``value`` that ``flow_of_known`` set for the current flow; None in a worker, which must resolve."""
    context = FlowRunContext.get()
    return _known.get(context.flow) if context and context.flow else None


def summary_line(outcome: Outcome) -> str:
    """Write the message of the flow run: ``demo/3 · dev: bleu 27.31, chrf 55.20 · test: …``."""
    numbers = {
        name: [f"{n} {card[n]:.2f}" for n in (headline(card), CHRF) if n in card]
        for name, card in outcome.scores.items()
    }
    cards = [f"{name}: {', '.join(each)}" for name, each in numbers.items()]
    return " · ".join([outcome.model_version or f"{outcome.run}: no version registered", *cards])


def scores_markdown(outcome: Outcome) -> str:
    """Write the scores, the model version and the report's path as Markdown."""
    lines = [f"# {outcome.run}", f"Model version: **{outcome.model_version or 'none registered'}**"]
    rows = score_rows(outcome.scores)
    lines += [table(["score", *outcome.scores], rows)] if rows else []
    lines += [f"Report: `{row.path}/report.html`" for row in outcome.rows if row.stage == "report" and row.path]
    return "\n\n".join(lines)
