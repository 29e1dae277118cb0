"""``repro site``."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from flows.views.terminal import say
from infra.site import configured_site


def site(
    *, out: Annotated[Path, Parameter(help="folder to write; an earlier site there is replaced")] = Path("public")
) -> None:
    """Write a static site of a root: versions with scores, cards and lineage; compares any two versions.

    The site needs no server and loads nothing from other hosts: open index.html, or copy the folder to any web host.

    Example: repro site --out public/
    """
    from flows.website.write import write_site

    source = configured_site()
    models, versions, files = write_site(source, out)
    if not versions:
        say(f"no model is registered in {source.root.absolute()}; `repro run demo` registers one; or set REPRO_ROOT")
    say(f"{versions} versions of {models} models, {files} files")
    print(out / "index.html")
