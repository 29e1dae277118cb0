"""``repro check``."""

import json
from typing import Annotated

from cyclopts import Parameter

from flows.commands.options import JsonOption, SiteOption
from flows.runs.completion import RUN_NAMES
from flows.views.terminal import print_text
from infra.errors import Fault
from infra.servers.environment import configure_libraries
from infra.site import Site


def check(
    run: Annotated[str, RUN_NAMES, Parameter(help="a built-in run that is finished here")] = "demo",
    /,
    *,
    site: SiteOption = "local",
    as_json: JsonOption = False,
) -> None:
    """Say whether a finished run reproduces what is recorded of it, or why not. Runs nothing.

    Scores must be within a tolerance. Averaged weights and translations must be equal to the bit where results of the
    same kind of machine (kernels, threads, ranks, torch) are recorded. Exit code 1 if it does not reproduce.

    Example: repro run demo && repro check demo
    """
    from flows.inspection.check import check_run

    configure_libraries(Site.named(site).root)
    found = check_run(run, site)
    if as_json:
        print(json.dumps(found.as_json(), ensure_ascii=False))
    if not found.is_reproduced:
        raise Fault(f"{found}")
    if not as_json:
        print_text(found)
