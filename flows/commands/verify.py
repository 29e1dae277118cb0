"""``repro verify``."""

import json
import time
from dataclasses import asdict

from flows.commands.options import JsonOption, SiteOption
from flows.views.terminal import say
from infra.errors import Fault
from infra.servers.environment import configure_libraries
from infra.site import Site

TOLD_SECONDS = 5.0


def verify(*runs: str, site: SiteOption = "local", as_json: JsonOption = False) -> None:
    """Read every byte of the artifacts of these runs, or of all there are, and name each file that is not as it was.

    Exit code 1 where there is one; the next run that needs it makes it again.

    For example:

    repro verify

    repro verify demo multi30k-ende --json
    """
    from flows.inspection.verify import verify as check

    configure_libraries(Site.named(site).root)
    told = time.monotonic()

    def tell(done: int, total: int, label: str) -> None:
        nonlocal told
        if time.monotonic() - told >= TOLD_SECONDS:
            told = time.monotonic()
            say(f"{done} of {total} artifacts are read; now {label}")

    checked = check(runs, site, tell)
    bad = [each for each in checked if each.wrong]
    for each in bad:
        for wrong in each.wrong:
            say(f"{each.place}: {wrong}")
    if as_json:
        print(json.dumps({"artifacts": len(checked), "damaged": [asdict(each) for each in bad]}, ensure_ascii=False))
    if bad:
        raise Fault(
            f"{len(bad)} of {len(checked)} artifacts are damaged; the next run that needs them makes them again"
        )
    say(f"{len(checked)} artifacts are whole")
