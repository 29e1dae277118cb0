"""A request carried out: by Prefect where there is work, without it where there is none."""

import atexit
import os
from contextlib import ExitStack
from pathlib import Path

from flows.runner.paper import PaperRequest, PaperResults, cached_paper, write_pages
from flows.runner.run import Outcome, RunRequest, cached_outcome, conclude, plan
from flows.views.terminal import say
from infra.processes import signals
from infra.servers.environment import server_configured
from infra.servers.temporary_prefect import temporary_server
from infra.site import Site


def dispatch(request: RunRequest, has_server: bool) -> Outcome:
    """Run what is missing; where nothing is, without Prefect, unless a server of the user's is to know of it."""
    outcome = None if has_server else cached_outcome(plan(request))
    if outcome is None:
        return _run_with_prefect(request)
    conclude(request, outcome, say)
    return outcome


def dispatch_paper(asked: PaperRequest, has_server: bool) -> PaperResults:
    """Likewise for rows of the paper, their page written; raises RowsFailed where one failed."""
    there = None if has_server else cached_paper(asked)
    if there:
        write_pages(there, Site.named(asked.site).root)
        return there
    _ensure_server()
    from flows.orchestration.prefect_flows import paper_with_prefect

    return signals.run_shielded(lambda: paper_with_prefect(asked))


def _run_with_prefect(request: RunRequest) -> Outcome:
    _ensure_server()
    from flows.orchestration.prefect_flows import run_with_prefect

    return signals.run_shielded(lambda: run_with_prefect(request))


def _ensure_server() -> None:
    """Have a server, before ``flows.orchestration.prefect_flows`` is imported: Prefect reads the address then."""
    if not server_configured():
        # Registered before Prefect is imported, so that it ends last: Prefect sends its log on the way out.
        stack = ExitStack()
        atexit.register(stack.close)
        os.environ["PREFECT_API_URL"] = stack.enter_context(temporary_server(Path(os.environ["PREFECT_HOME"])))
