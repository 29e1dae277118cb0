"""A request carried out: by Prefect where there is work, without it where there is none."""

import atexit
import os
from contextlib import ExitStack
from pathlib import Path

from flows.runner.paper import Paper, PaperRequest, all_there, keep
from flows.runner.run import Outcome, Request, conclude, nothing_to_do, plan
from flows.views.terminal import say
from infra.processes import signals
from infra.servers.environment import server_configured
from infra.servers.temporary_prefect import temporary_server
from infra.site import Site


def carry_out(request: Request, served: bool) -> Outcome:
    """Run what is missing; where nothing is, without Prefect, unless a server of the user's is to know of it."""
    outcome = None if served else nothing_to_do(plan(request))
    if outcome is None:
        return _through_prefect(request)
    conclude(request, outcome, say)
    return outcome


def carry_out_paper(asked: PaperRequest, served: bool) -> Paper:
    """Likewise for rows of the paper, their page written; raises RowsFailed where one failed."""
    there = None if served else all_there(asked)
    if there:
        keep(there, Site.named(asked.site).root)
        return there
    _serve()
    from flows.orchestration.prefect_flows import paper_with_prefect

    return signals.shielded(lambda: paper_with_prefect(asked))


def _through_prefect(request: Request) -> Outcome:
    _serve()
    from flows.orchestration.prefect_flows import run_with_prefect

    return signals.shielded(lambda: run_with_prefect(request))


def _serve() -> None:
    """Have a server, before ``flows.orchestration.prefect_flows`` is imported: Prefect reads the address then."""
    if not server_configured():
        # Registered before Prefect is imported, so that it ends last: Prefect sends its log on the way out.
        stack = ExitStack()
        atexit.register(stack.close)
        os.environ["PREFECT_API_URL"] = stack.enter_context(temporary_server(Path(os.environ["PREFECT_HOME"])))
