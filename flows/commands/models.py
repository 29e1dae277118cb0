"""``repro models``."""

from typing import Annotated

from cyclopts import Parameter

from flows.display import say
from infra.quiet import settle
from infra.site import Site


def models(name: Annotated[str, Parameter(help="one model only")] = "") -> None:
    """List registered model versions with their scores, protocol and aliases.

    Example: repro models demo
    """
    from infra.registry import versions

    site = Site.named()
    settle(site.root)
    found = versions(site.tracking, name)
    if not found:
        say("no model is registered yet; `repro run demo` registers one")
    for version in found:
        print(version.line())
