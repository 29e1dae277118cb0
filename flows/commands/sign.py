"""``repro sign``."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from flows.commands.options import SiteOption
from flows.views.terminal import say
from infra.servers.environment import configure_libraries
from infra.site import Site


def sign(
    version: Annotated[str, Parameter(help="a version such as demo@champion or demo/3")],
    *,
    key: Annotated[Path, Parameter(help="PEM file of a private key on P-256, P-384 or P-521")],
    site: SiteOption = "local",
) -> None:
    """Sign a version, its weights and every artifact that they were made from, back to the sums of the archives.

    Writes one file of in-toto statements with SLSA provenance. `repro verify VERSION --key PUBLIC_KEY` checks it. The
    password of the key, if it has one, is taken from REPRO_SIGN_KEY_PASSWORD or asked for on the terminal.

    For example:

    repro sign demo@champion --key sign.key
    """
    from flows.inspection.signed_version import sign_version

    present = Site.named(site)
    configure_libraries(present.root)
    path = sign_version(version, key, present)
    say(f"{version} is signed; to check it: repro verify {version} --key PUBLIC_KEY")
    print(path)
