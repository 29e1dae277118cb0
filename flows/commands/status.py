"""``repro status``."""

from typing import Annotated

from cyclopts import Parameter

from flows.commands.options import JsonOption, SiteOption
from flows.runner.interrupted import forget, unfinished
from flows.views.tables import state_table
from flows.views.terminal import print_json, print_text, say, show
from infra.errors import Fault
from infra.servers.environment import configure_libraries
from infra.servers.service_settings import FOLDER
from infra.service import lifecycle
from infra.service.supervision import as_json as form
from infra.service.supervision import states
from infra.site import Site, open_store


def status(
    *,
    close: Annotated[
        bool, Parameter(help="close dead runs in MLflow and Prefect, and list interrupted runs a last time")
    ] = False,
    site: SiteOption = "local",
    as_json: JsonOption = False,
) -> None:
    """Show the service's programs, running runs and served models; list interrupted runs with commands to resume them.

    A program is shown with state, start, health, address and log. Every run with work also closes dead runs when it
    begins.

    Exit code 1 if the service is down or a program is not healthy, but not with --close.

    For example:

    repro status --close
    """
    from flows.inspection.stage_logs import StageLog
    from flows.runner.recorded_runs import read_headers, with_stages
    from flows.runner.records import RUNNING
    from flows.web.at_work import serving

    where = Site.named(site)
    folder = where.root.absolute() / FOLDER
    if close:
        from flows.orchestration.dispatch import close_dead_runs

        configure_libraries(where.root)
        closed = close_dead_runs(where)
        none = "no run was closed: none has a dead process, or MLflow does not answer"
        say(f"closed runs whose process is dead: {closed}" if closed else none)
    service = lifecycle.running(folder)
    programs = states(service) if service else []
    interrupted = unfinished(where)
    store = open_store(where)
    at_work = [start for each in read_headers(store.root) if each.outcome == RUNNING and (start := with_stages(each))]
    if programs:
        show(state_table(programs), aside=as_json)
    for start in () if as_json else at_work:
        logs = (StageLog(store, row, start) for row in start.stages)
        stages = ", ".join(log.row.label for log in logs if log.is_at_work) or "no stage at work"
        since = f"{start.started.astimezone():%Y-%m-%d %H:%M}"
        print_text(f"{start.full_name} is at work since {since} in process {start.pid}: {stages}")
    served = [*serving(where.root)]
    for words in () if as_json else served:
        print_text(f"repro serve: {words}")
    if as_json:
        lists = {"at_work": at_work, "interrupted": interrupted}
        runs = {name: [each.as_json() for each in found] for name, found in lists.items()}
        print_json(form(programs) | runs | {"serving": served})
    elif interrupted:
        again = "; `repro status` lists them no more" if close else ", and --close takes them off this list"
        print_text(f"these runs were interrupted; their finished stages are kept{again}. To resume them:")
        for each in interrupted:
            print_text(each.command)
    else:
        say("no run is interrupted" if at_work else "no run is at work or interrupted")
    if close:
        forget(where, interrupted)
        return
    if not programs:
        raise Fault(f"no service is running under {folder.parent}; start it with `repro up`")
    if bad := [each.name for each in programs if not each.healthy]:
        raise Fault(f"not healthy: {', '.join(bad)}; see the logs in {folder / 'logs'}")
