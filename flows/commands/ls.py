"""``repro ls`` and ``path``."""

import json
from typing import Annotated

from cyclopts import Parameter

from flows.commands.options import JsonOption, OverridesOption, SiteOption
from flows.views.tables import age_text, size_text
from flows.views.terminal import print_text, say
from infra.site import Site


def ls(
    name: Annotated[str, Parameter(help="a run, RUN/STAGE or RUN/STAGE/ITEM; default: every run with a record")] = "",
    /,
    *,
    why: Annotated[bool, Parameter(help="also say which versions and runs use each", negative=())] = False,
    overrides: OverridesOption = (),
    site: SiteOption = "local",
    as_json: JsonOption = False,
) -> None:
    """List the newest artifact of each stage of a run: name, key, size, age, state (there, missing, damaged), path.

    The latest is first.

    For example:

    repro ls

    repro ls multi30k-ende/score

    repro ls multi30k-ende/clean --why
    """
    from flows.inspection.artifact_list import list_artifacts, users_of

    where = Site.named(site)
    found = list_artifacts(name, where, overrides)
    users = users_of(found, where) if why else {}
    if as_json:
        forms = [each.as_json() | users.get((each.stage, each.key), {}) for each in found]
        print(json.dumps({"artifacts": forms}, ensure_ascii=False))
        return
    if not found:
        say("no run has a record here yet; start one with `repro run demo`")
    width = max((len(each.name) for each in found), default=0)
    for each in found:
        age = "" if each.age_seconds is None else age_text(each.age_seconds)
        state = f"{each.state} ({each.why})" if each.why else each.state
        print_text(f"{each.name:{width}}  {each.key}  {size_text(each.bytes):>10}  {age:>8}  {state:7}  {each.path}")
        for what, names in users.get((each.stage, each.key), {}).items():
            print_text(f"    {what}: {', '.join(names) or 'none'}")


def path(
    name: Annotated[str, Parameter(help="RUN/STAGE or RUN/STAGE/ITEM")],
    /,
    *,
    overrides: OverridesOption = (),
    site: SiteOption = "local",
) -> None:
    """Print the folder of the newest artifact of a stage, one line for each item; download it from a bucket first.

    For example:

    ls $(repro path multi30k-ende/clean)

    repro path multi30k-ende/score/val
    """
    from flows.inspection.artifact_list import artifact_folders

    for folder in artifact_folders(name, Site.named(site), overrides):
        print_text(folder)
