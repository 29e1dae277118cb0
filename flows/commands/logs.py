"""``repro logs``."""

from typing import Annotated

from cyclopts import Parameter

from flows.commands.options import STAGE_NAMES, SiteOption
from flows.runs.completion import OverridesOption, RecordedRunOption
from flows.views.terminal import print_text, say
from infra.errors import BadConfiguration
from infra.processes import signals
from infra.site import Site, open_store

POLL_SECONDS = 1.0


def logs(
    run: RecordedRunOption,
    stage: Annotated[
        str,
        STAGE_NAMES,
        Parameter(help="a stage, or STAGE/ITEM; default: what is at work, else what failed, else the last with a log"),
    ] = "",
    *,
    follow: Annotated[
        bool, Parameter(name=("--follow", "-f"), negative=(), help="go on until the run ends; Ctrl-C leaves it running")
    ] = False,
    overrides: OverridesOption = (),
    site: SiteOption = "local",
) -> None:
    """Print what stages of the newest start say: the measurements of a job, its log, and why it failed.

    For example:

    repro logs multi30k-ende --follow

    repro logs demo train
    """
    from flows.inspection.stage_logs import StageLog, newest_start, stage_logs
    from flows.runner.artifact_names import parse_name
    from flows.runner.records import RUNNING

    store = open_store(Site.named(site))
    wanted = parse_name("/".join(filter(None, (run, stage))))
    shown: dict[tuple[str, str], StageLog] = {}
    while True:
        start = newest_start(store, wanted.run, overrides)
        for log in stage_logs(store, start, wanted):
            place = (log.row.stage, log.row.item)
            if place not in shown:
                where = log.folder
                state = "at work" if log.is_at_work else log.row.state
                say(f"{start.run}: {log.row.label} is {state}{f'; {where}' if where else ', and wrote no log'}")
            shown.setdefault(place, log).row = log.row
        for log in shown.values():
            for line in log.new_lines():
                print_text(line)
        if not follow or start.outcome != RUNNING:
            break
        signals.wait(POLL_SECONDS)
    if not shown and stage:
        raise BadConfiguration(f"the newest start of {start.run} has not reached {stage!r}; it is {start.outcome}")
    for log in shown.values():
        for failure in log.row.failures:
            print_text(f"{log.row.label} failed: {failure}")
    say(f"{start.run} is {start.outcome}{f': {start.failure}' if start.failure else ''}")
