"""``repro logs``."""

from typing import Annotated

from cyclopts import Parameter

from flows.commands.options import STAGE_NAMES, SiteOption
from flows.runs.completion import OverridesOption, RecordedRunOption
from flows.runs.overrides import as_options
from flows.views.terminal import print_text, say
from infra.errors import BadConfiguration
from infra.processes import signals
from infra.site import Site, configured_site, open_store

POLL_SECONDS = 1.0
LINES = 40
"""Lines of a stage to print at first."""


def logs(
    run: RecordedRunOption,
    stage: Annotated[
        str,
        STAGE_NAMES,
        Parameter(help="a stage, or STAGE/ITEM; default: running stages, else failed ones, else the training"),
    ] = "",
    *,
    follow: Annotated[
        bool, Parameter(name=("--follow", "-f"), help="print new lines until the run ends; Ctrl-C does not stop it")
    ] = False,
    every: Annotated[
        bool, Parameter(name="--all-lines", help=f"all lines, with torchrun's traces, not only the last {LINES}")
    ] = False,
    overrides: Annotated[
        OverridesOption, Parameter(help="the newest start with this override; repeatable; '' for none")
    ] = (),
    site: SiteOption = "local",
) -> None:
    """Print the logs of a run's stages: measurements, job log, and why a stage failed.

    The newest running start counts, else the newest; with STAGE, the newest that reached it. --set chooses settings. A
    version stands for the first finished start with its training.

    For example:

    repro logs demo translate/test --all-lines

    repro logs demo/3 train

    repro logs demo train --set ''
    """
    from flows.inspection.stage_logs import StageLog, newest_start, stage_logs
    from flows.runner.artifact_names import is_version, parse_name
    from flows.runner.find_run import find_version
    from flows.runner.recorded_runs import failure_text, with_stages
    from flows.runner.records import KILLED, RUNNING, receive_records
    from flows.views.tables import format_facts

    store = open_store(Site.named(site))
    key = ""
    if is_version(run):
        version = find_version(run, configured_site(site))
        run, key = version.name, version.tags.get("key.train", "")
    wanted = parse_name("/".join(filter(None, (run, stage))))
    shown: dict[tuple[str, str], StageLog] = {}
    start = newest_start(store, wanted, overrides, key)
    while True:
        for log in stage_logs(store, start, wanted, finished=not shown):
            place = (log.row.stage, log.row.item)
            if place not in shown:
                say(f"{start.full_name}: {log.row.label} {log.state}; {log.folder or 'there is no log of it'}")
                lines = [*log.new_lines(every)]
                left_out = 0 if every else max(0, len(lines) - LINES)
                if left_out:
                    say(f"{left_out} earlier lines are left out; --all-lines prints them")
                for line in lines[left_out:]:
                    print_text(line)
                if not lines and (made := store.find(log.row.stage, log.row.key)):
                    say(f"it wrote no log; its results: {format_facts(made.facts)}")
            known = shown.setdefault(place, log)
            known.row = log.row
            known.start = start
        for log in shown.values():
            for line in log.new_lines(every):
                print_text(line)
        if not follow or start.outcome != RUNNING:
            break
        signals.wait(POLL_SECONDS)
        receive_records(store, start.run)
        start = with_stages(start) or start
    if not shown and stage:
        raise BadConfiguration(
            f"no start of {start.run}{as_options(overrides)} has reached {stage!r}; the newest is {start.outcome}"
        )
    ended = {(row.stage, row.item): row for row in start.stages}
    for place, log in shown.items():
        log.row = ended.get(place, log.row)  # its failures are recorded when the stage ends
        for failure in log.row.tried_again_after:
            print_text(f"earlier, {log.row.label} was tried again after: {failure}")
        for failure in log.row.failures[len(log.row.tried_again_after) :]:
            if not start.failure.startswith(f"{log.row.label} failed: "):  # the last printed line says this
                print_text(f"{log.row.label} {failure_text(failure)}")
    resume = f"; to resume it: {start.command}" if start.outcome == KILLED else ""
    begun = f"{start.started.astimezone():%Y-%m-%d %H:%M}"
    say(f"{start.full_name}, begun {begun}, is {start.end}{f': {start.failure}' if start.failure else ''}{resume}")
    if start.overrides and not overrides:
        say(f"for the newest start without --set: repro logs {start.run}{f' {stage}' * bool(stage)} --set ''")
