"""``repro check``."""

from typing import Annotated

from cyclopts import Parameter

from flows.commands.options import JsonOption, SiteOption
from flows.runs.completion import RUN_NAMES
from flows.views.terminal import print_json, print_text
from infra.errors import Fault
from infra.site import configured_site


def check(
    run: Annotated[str, RUN_NAMES, Parameter(help="a built-in run that is finished here")] = "demo",
    /,
    *,
    site: SiteOption = "local",
    as_json: JsonOption = False,
) -> None:
    """Say whether a finished run reproduces its recorded results, and if not, why. Runs nothing.

    Scores must be within a tolerance. Averaged weights and translations must be equal to the bit if results of the same
    kind of machine (kernels, threads, ranks, torch) are recorded. Exit code 1 if the run is not reproduced.

    Example: repro run demo && repro check demo
    """
    from flows.inspection.check import check_run

    configured_site(site)
    found = check_run(run, site)
    if as_json:
        print_json(found.as_json())
    if not found.is_reproduced:
        raise Fault(f"{found}")
    if not as_json:
        print_text(found)
