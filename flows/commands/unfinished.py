"""``repro unfinished``."""

import json
from typing import Annotated

from cyclopts import Parameter

from flows.commands.options import JsonOption, SiteOption
from flows.orchestration.dispatch import close_dead_runs
from flows.runner import interrupted
from flows.views.terminal import print_text, say
from infra.servers.environment import configure_libraries
from infra.site import Site


def unfinished(
    *,
    close: Annotated[
        bool,
        Parameter(negative=(), help="first close runs in MLflow, Prefect and the records whose process is dead"),
    ] = False,
    site: SiteOption = "local",
    as_json: JsonOption = False,
) -> None:
    """List interrupted runs: for each, the command that resumes it.

    Every run with work also closes them when it begins, and one without work if a run of its name was killed.

    For example:

    repro unfinished

    repro unfinished --close
    """
    where = Site.named(site)
    configure_libraries(where.root)
    if close:
        closed = close_dead_runs(where)
        say(f"closed runs whose process is dead: {closed}" if closed else "no open run has a dead process")
    found = interrupted.unfinished(where)
    if as_json:
        forms = [
            {
                "run": each.run,
                "overrides": list(each.overrides),
                "begun": each.path.stem,
                "command": each.command,
                "record": f"{each.path}",
            }
            for each in found
        ]
        print(json.dumps(forms, ensure_ascii=False))
        return
    for each in found:
        print_text(each.command)
    if not found:
        say("no run is interrupted")
