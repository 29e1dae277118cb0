"""``repro sweep``."""

from flows.commands.options import JsonOption
from flows.orchestration.dispatch import dispatch_group
from flows.runner.group import GroupFailed
from flows.tuning.sweep import ResolvedSweep, SweepRequest, SweepResults
from flows.views.tables import sweep_table
from flows.views.terminal import show
from infra.servers.environment import configure_libraries


def sweep(request: SweepRequest, *, as_json: JsonOption = False) -> None:
    """Search for the settings of a run with the best dev score.

    Each trial is a run up to its dev score; trials share all stages that their settings do not change. Optuna proposes
    the settings. The same command continues an interrupted sweep and retries failed trials; a larger --trials adds
    trials. No test set is translated.

    Example: repro sweep demo --space training.peak=1e-3..1e-2:log --space model.p_drop=0.1,0.2,0.3
    """
    resolved = request.resolve()
    configure_libraries(resolved.base.site.root)
    try:
        _show(dispatch_group(resolved), resolved, as_json)
    except GroupFailed as failed:
        _show(failed.found, resolved, as_json)
        raise


def _show(found: SweepResults, resolved: ResolvedSweep, as_json: bool) -> None:
    lines = [f"picture: {resolved.folder / 'sweep.png'}", *([f"best:    {found.command}"] if found.command else [])]
    show("", sweep_table(found), "", *lines, result=found.as_json() if as_json else None)
