"""``repro history``."""

from datetime import UTC, datetime, timedelta
from typing import Annotated

from cyclopts import Parameter

from flows.commands.options import JsonOption, SiteOption
from flows.runs.completion import RUN_NAMES
from flows.runs.unknown_names import unknown_name
from flows.views.terminal import print_json, print_text, say
from infra.errors import BadConfiguration
from infra.site import Site, open_store
from tasks.durations import seconds_of


def history(
    run: Annotated[str, RUN_NAMES, Parameter(help="one run as its records name it; default: all")] = "",
    /,
    *,
    since: Annotated[str, Parameter(help="how far back: 12h, 30d, 4w, or a date such as 2026-11-01")] = "4w",
    site: SiteOption = "local",
    as_json: JsonOption = False,
) -> None:
    """List the starts of a run: request, outcome, failure, retries and hours.

    The newest comes first. Hours are the time of the stages that were made; for a running or killed run, the time since
    its start.

    For example:

    repro history multi30k-ende --since 2026-11-01
    """
    from flows.runner.find_run import recorded_name
    from flows.runner.recorded_runs import read_history, run_names
    from flows.views.history_view import history_text

    run = recorded_name(run)
    store = open_store(Site.named(site))
    begin = start_of(since)
    found = read_history(store, run, begin)
    if run and not found and run not in (known := run_names(store.root)):
        raise BadConfiguration(unknown_name(run, known, f"the records of {store.root}", "run"))
    if as_json:
        print_json({"runs": [each.as_json() for each in found]})
    elif found:
        print_text(history_text(found))
    else:
        say(f"no run began since {begin.astimezone():%Y-%m-%d %H:%M}; look further back with --since")


def start_of(since: str) -> datetime:
    """Parse ``4w`` or ``2026-11-01`` to a time. Raises BadConfiguration for other text."""
    try:
        if (seconds := seconds_of(since)) is not None:
            return datetime.now(UTC) - timedelta(seconds=seconds)
        return datetime.fromisoformat(since).astimezone(UTC)
    except (ValueError, OverflowError):
        raise BadConfiguration(f"--since is {since!r}, allowed is 12h, 30d, 4w or a date such as 2026-11-01") from None
