"""Runs a scheduled check as a Prefect flow: repeats a run in its own folder and compares the results.

``repro deploy demo --check --cron "0 1 * * *"`` deploys it.
"""

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.states import Completed, Failed

from flows.inspection.check import compare_results, expected_of, fresh_run
from flows.orchestration.duplicates import duplicate_run
from flows.orchestration.flow_parts import OPTIONS, SiteName, claim_and_close_dead_runs
from flows.reproduce import reproduce
from flows.runner.request import RunRequest, make_plan
from flows.runner.run import running
from flows.views.terminal import TerminalDisplay
from infra.site import open_store
from tasks.engine.prefect_runner import PrefectRunner


@flow(name="check", flow_run_name="check of {run}", **OPTIONS)
def check(run: str = "demo", site: SiteName = "local") -> State[None]:
    """Repeat a run from its downloads to its scores in its own folder; fail if the recorded results differ.

    Args:
        run: The name of a run with recorded results, such as demo.
        site: Where to compute. The worker that takes this flow run makes all stages.
    """
    claim_and_close_dead_runs(site)
    if duplicate := duplicate_run(check):
        return Completed(name="Skipped", message=duplicate)
    expected = expected_of(run)
    resolved = fresh_run(RunRequest(run, until="score", site=site))
    planned = make_plan(resolved)
    with running(planned, TerminalDisplay(), PrefectRunner) as outcome:
        reproduce(resolved.run, resolved.is_modified, planned.initial)
    comparison = compare_results(run, outcome.rows, open_store(resolved.site), expected)
    return (Completed if comparison.is_reproduced else Failed)(message=f"{comparison}")
