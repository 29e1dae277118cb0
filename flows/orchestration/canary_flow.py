"""The canary as a Prefect flow: ``repro deploy --canary demo`` deploys it: each night it reruns a run."""

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.runtime import flow_run
from prefect.states import Completed, Failed

from flows.inspection.canary import CanaryLimits, fresh_run, judge
from flows.orchestration.duplicates import duplicate_run
from flows.orchestration.prefect_flows import (
    SiteName,
    claim_and_close_dead_runs,
    close_dead_runs_after_kill,
    parameter_defaults,
)
from flows.runner.request import RunRequest
from flows.runner.run import run as run_resolved
from flows.views.terminal import TerminalDisplay
from tasks.engine.prefect_runner import PrefectTaskWrapper


@flow(
    name="canary",
    flow_run_name=lambda: f"canary of {flow_run.parameters['run']}",
    log_prints=False,
    on_crashed=[close_dead_runs_after_kill],
    on_cancellation=[close_dead_runs_after_kill],
)
def canary(
    run: str = "demo",
    seconds: float = 0.0,
    slower: float = 2.0,
    site: SiteName = "local",
) -> State[None]:
    """Rerun a run from its downloads to its scores in a folder of its own, and fail if something moved.

    Args:
        run: A run's name, as `repro runs` lists them, or FILE.toml or FILE.py:NAME for one of your own.
        seconds: The most that all stages together may take. 0: no limit.
        slower: The most that they may take, as a multiple of the median of the last seven canaries. 0: no limit.
        site: Where to compute. All stages are made by the worker that takes this flow run.
    """
    claim_and_close_dead_runs(site)
    if duplicate := duplicate_run("canary", parameter_defaults(canary)):
        return Completed(name="Skipped", message=duplicate)
    limits = CanaryLimits(seconds, slower)
    resolved = fresh_run(RunRequest(run, site=site))
    task_wrapper = PrefectTaskWrapper(resolved.site.root.absolute() / "prefect-records")
    try:
        outcome = run_resolved(resolved, TerminalDisplay(task_wrapper.progress), task_wrapper)
    finally:
        task_wrapper.close()
    found = judge(resolved, outcome.rows, limits)
    return (Failed if found.moved else Completed)(message=found.message(resolved.run.name))
