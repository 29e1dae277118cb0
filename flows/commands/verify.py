"""``repro verify``."""

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from flows.commands.completion import RUN_NAMES
from flows.commands.options import JsonOption, SiteOption
from flows.views.terminal import say
from infra.errors import BadConfiguration, Fault
from infra.servers.environment import configure_libraries
from infra.site import Site

PROGRESS_SECONDS = 5.0


def verify(
    *runs: Annotated[str, RUN_NAMES],
    key: Annotated[
        Path | None,
        Parameter(help="a public key (PEM), or a folder of them: verify the signatures of these versions instead"),
    ] = None,
    site: SiteOption = "local",
    as_json: JsonOption = False,
) -> None:
    """Read every byte of the artifacts of these runs or names, by default of all, and name each damaged file.

    Exit code 1 if an artifact is damaged. The next run that needs it makes it again.

    With --key the names are versions: one of the keys must have signed each, with its weights and all that they were
    made from, and its model must be as signed. Exit code 1 for one that is not.

    For example:

    repro verify

    repro verify demo multi30k-ende/average --json

    repro verify demo@champion --key us.pem
    """
    if key:
        _verify_signatures(runs, key, Site.named(site), as_json)
        return
    from flows.inspection.verify import verify as check

    configure_libraries(Site.named(site).root)
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
            say(f"{each.place}: {wrong}")
    if as_json:
        print(json.dumps({"artifacts": len(checked), "damaged": [asdict(each) for each in bad]}, ensure_ascii=False))
    if bad:
        raise Fault(
            f"{len(bad)} of {len(checked)} artifacts are damaged; the next run that needs them makes them again"
        )
    say(f"all {len(checked)} artifacts are intact")


def _verify_signatures(versions: tuple[str, ...], key: Path, site: Site, as_json: bool) -> None:
    from flows.inspection.signed_version import verify_version

    if not versions:
        raise BadConfiguration("verify --key needs the name of a version, for example demo@champion or demo/3")
    configure_libraries(site.root)
    proofs = [verify_version(version, key, site) for version in versions]
    for proof in proofs:
        say(f"{proof.version}: signed by {proof.key[:12]}, {proof.files} files of the model are as signed")
        say(f"made from {len(proof.artifacts)} signed artifacts and {len(proof.archives)} archives:")
        for path, sums in proof.archives.items():
            say(f"  {path}  {' '.join(f'{kind} {value}' for kind, value in sums.items())}")
        if proof.adopted:
            say(f"adopted, so that nothing proves what they were made from: {', '.join(proof.adopted)}")
    if as_json:
        print(json.dumps({"versions": [asdict(proof) for proof in proofs]}, ensure_ascii=False))
