"""Runs a request: with Prefect if there is work, else without."""

import atexit
import os
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from flows.runner import interrupted
from flows.runner.outcome import Outcome, cached_outcome
from flows.runner.paper import ResolvedPaper
from flows.runner.request import RunPlan
from flows.runner.run import RunRecord
from flows.tuning.sweep import ResolvedSweep
from flows.views.terminal import say
from infra.processes import signals
from infra.servers.environment import configure_libraries, server_configured
from infra.servers.mlflow_sqlite import check_database
from infra.servers.prefect_states import has_abandoned_flow_runs
from infra.servers.temporary_prefect import temporary_server
from infra.site import Site
from infra.tracking.client import mlflow_client


def dispatch(planned: RunPlan) -> Outcome:
    """Run the missing stages. Raises BadConfiguration for a damaged MLflow database.

    A run without work uses Prefect only if the user has a server, which then records it.
    """
    outcome = None if has_user_server() else cached_outcome(planned.outcome)
    site = planned.resolved.site
    record = RunRecord(planned, say)
    if outcome:
        record.conclude(outcome)
        return outcome
    check_database(site.tracking)
    with record.until_running():
        _ensure_server(site)
        from flows.orchestration.prefect_flows import run_with_prefect

        outcome = signals.shielded(partial(run_with_prefect, planned))
    record.close(outcome)
    return outcome


def dispatch_group(resolved: ResolvedPaper | ResolvedSweep) -> Any:
    """Run rows of the paper or trials of a sweep in the same way. Raises GroupFailed if a row or all trials failed."""
    site = resolved.group.site
    if not has_user_server() and not resolved.group.has_work:
        return resolved.run(dispatch, say)
    check_database(site.tracking)
    _ensure_server(site)
    from flows.orchestration.prefect_flows import group_with_prefect

    return signals.shielded(partial(group_with_prefect, resolved))


def close_dead_runs(site: Site) -> int:
    """Close the runs that dead processes left "Running" (``flows.runner.interrupted``); return their number.

    Without a Prefect server of the user, starts a temporary one if its database has such a flow run.
    """
    configure_libraries(site.root)
    if not server_configured() and has_abandoned_flow_runs():
        _ensure_server(site)
    return interrupted.close_dead_runs(site)


def has_user_server() -> bool:
    """Whether the user has a Prefect server; a temporary server of this process does not count."""
    return server_configured() and os.environ.get("PREFECT_API_URL") not in _temporary_servers


_temporary_servers: set[str] = set()
"""Addresses of the servers that this process started."""


def _ensure_server(site: Site) -> None:
    """Start a server if none is configured, before the import of Prefect, which reads the address."""
    configure_libraries(site.root)
    if not server_configured():
        # Registered before the import of Prefect, so that the server ends last: Prefect sends its log at exit.
        stack = ExitStack()
        atexit.register(stack.close)
        server = temporary_server(Path(os.environ["PREFECT_HOME"]), say, partial(_prepare, site))
        try:
            address = stack.enter_context(server)
        except BaseException:
            os.environ.pop("PREFECT_API_URL", None)
            raise
        _temporary_servers.add(address)
    if "prefect" in sys.modules:  # for example, a notebook imported it
        from prefect.context import refresh_global_settings_context

        refresh_global_settings_context()


def _prepare(site: Site, address: str) -> None:
    """Import Prefect and MLflow and open MLflow's database, while the server at ``address`` starts."""
    os.environ["PREFECT_API_URL"] = address
    import flows.orchestration.prefect_flows  # noqa: F401

    mlflow_client(site.tracking)
