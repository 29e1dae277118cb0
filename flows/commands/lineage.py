"""``repro lineage``."""

import json
from typing import Annotated

from cyclopts import Parameter

from flows.commands.options import JsonOption, SiteOption
from flows.views.terminal import print_text
from infra.servers.environment import configure_libraries
from infra.site import Site


def lineage(
    what: Annotated[
        str, Parameter(help="a raw file, a key or its beginning, a version, a run, RUN/STAGE or RUN/STAGE/ITEM")
    ],
    /,
    *,
    site: SiteOption = "local",
    as_json: JsonOption = False,
) -> None:
    """Show what an artifact or a version was made from, and what rests on it.

    From a raw file to all versions that contain it; from a score or a version to every file behind it.

    For example:

    repro lineage train.de

    repro lineage demo/score/test

    repro lineage demo@champion --json
    """
    from flows.inspection.artifact_lineage import find_lineage
    from flows.views.lineage_view import lineage_text

    where = Site.named(site)
    configure_libraries(where.root)
    found = find_lineage(what, where)
    print_text(json.dumps(found.as_json(), ensure_ascii=False) if as_json else lineage_text(found))
