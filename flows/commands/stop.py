"""``repro stop``."""

from typing import Annotated

from cyclopts import Parameter

from flows.commands.options import SiteOption
from flows.runs.completion import OverridesOption, RecordedRunOption
from flows.runs.overrides import as_options
from flows.views.terminal import print_text, say
from infra.errors import BadConfiguration, Fault
from infra.site import configured_site


def stop(
    run: RecordedRunOption,
    *,
    overrides: Annotated[OverridesOption, Parameter(help="of several starts, stop the one with this override")] = (),
    every: Annotated[
        bool, Parameter(name="--all", help="stop all starts, if several with different settings are running")
    ] = False,
    site: SiteOption = "local",
) -> None:
    """Stop a run in a terminal of this machine, on a worker of `repro up`, or in a batch queue.

    The run writes a last checkpoint; finished stages are kept, and the printed command resumes it. If several starts
    with different settings are running, --set chooses one. Exit code 1 if none is running, or it did not end.

    Example: repro stop demo --set training.seed=9
    """
    from flows.runner.artifact_names import parse_name
    from flows.runner.recorded_runs import with_overrides
    from flows.runner.records import FINISHED
    from flows.runner.stopping import starts_at_work, stop_left_jobs, stop_start

    where = configured_site(site)
    asked = parse_name(run)
    name = asked.run
    if asked.stage:
        raise BadConfiguration(f"{run!r} is given, allowed is a whole run, such as {name}")
    at_work = starts_at_work(where, name)
    chosen = with_overrides(at_work, overrides)
    left = None if chosen else stop_left_jobs(where, name, overrides, say)
    if not chosen and not left:
        others = "; at work is: " + "; ".join(each.command for each in at_work) if at_work else ""
        raise Fault(f"{name}{as_options(overrides)} is not at work{others}; `repro history {name}` says how it ended")
    if len(chosen) > 1 and not every:
        commands = "; ".join(each.command for each in chosen)
        raise BadConfiguration(f"{len(chosen)} starts are at work, allowed is one by --set, or --all: {commands}")
    for ended in [left] if left else (stop_start(where, each, say) for each in chosen):
        kept = sum(stage.has_artifact for stage in ended.stages)
        stopped = f"stopped {name}: {kept} finished stages are kept. To resume it: {ended.command}"
        print_text(f"{name} finished before it could be stopped" if ended.outcome == FINISHED else stopped)
