"""``repro verify``."""

import time
from dataclasses import asdict
from typing import Annotated

from flows.commands.options import JsonOption, SiteOption
from flows.runs.completion import RUN_NAMES
from flows.views.terminal import print_json, say, show
from infra.errors import Fault
from infra.site import configured_site

PROGRESS_SECONDS = 5.0


def verify(*runs: Annotated[str, RUN_NAMES], site: SiteOption = "local", as_json: JsonOption = False) -> None:
    """Read every byte of the artifacts of these runs or names (default: all), and name each damaged file.

    Exit code 1 if an artifact is damaged. The next run that needs it makes it again.

    For example:

    repro verify demo multi30k-ende/average --json
    """
    from flows.inspection.verify import verify as check

    configured_site(site)
    reported = time.monotonic()

    def report(done: int, total: int, label: str) -> None:
        nonlocal reported
        if time.monotonic() - reported >= PROGRESS_SECONDS:
            reported = time.monotonic()
            say(f"verified {done} of {total} artifacts; reading {label}")

    checked = check(runs, site, report)
    bad = [each for each in checked if each.wrong]
    for each in bad:
        for wrong in each.wrong:
            show(f"{each.place}: {wrong}", aside=as_json)
    if as_json:
        print_json({"artifacts": len(checked), "damaged": [asdict(each) for each in bad]})
    if bad:
        raise Fault(f"{len(bad)} of {len(checked)} artifacts are damaged; a run that needs them makes them again")
    say(f"all {len(checked)} artifacts are intact")
