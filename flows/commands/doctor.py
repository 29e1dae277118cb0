"""``repro doctor``."""

from dataclasses import asdict

from flows.commands.options import JsonOption, SiteOption
from flows.inspection.doctor import Check, examine
from flows.views.terminal import print_json
from infra.errors import Fault
from infra.guards.shown_text import shown
from infra.site import Site


def doctor(*, site: SiteOption = "local", as_json: JsonOption = False) -> None:
    """Check that this machine, its settings and its servers can do the work; each problem comes with advice.

    Checks Python, torch, cores, memory, the disk of the root, Prefect, MLflow, mirrors, the ssh machine, and the root's
    bucket with its clock. It only creates the folder on the ssh machine, and writes and deletes small objects in the
    bucket. Exit code 1 if a check failed; warnings do not count.

    Example: repro doctor
    """
    found: list[Check] = []
    for check in examine(Site.named(site)):
        found.append(check)
        if not as_json:
            advice = f": {check.advice}" if check.advice else ""
            print(shown(f"{check.verdict:8} {check.name:11} {check.found}{advice}"), flush=True)
    failed = [check.name for check in found if check.verdict == "failure"]
    if as_json:
        print_json({"ok": not failed, "checks": [asdict(check) for check in found]})
    if failed:
        raise Fault(f"{len(failed)} of {len(found)} checks failed: {', '.join(failed)}")
