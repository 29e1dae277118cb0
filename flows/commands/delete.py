"""``repro delete``."""

import shlex
import sys
from typing import Annotated

from cyclopts import Parameter

from flows.runner.find_run import recorded_name
from flows.runs.completion import VERSION_NAMES
from flows.views.tables import size_text
from flows.views.terminal import print_text, say
from flows.web.at_work import serving
from infra.errors import BadConfiguration, Fault
from infra.site import configured_site
from infra.store.files import files_below


def delete(
    version: Annotated[str, VERSION_NAMES, Parameter(help="one model version, for example demo/3")],
    *,
    yes: Annotated[bool, Parameter(help="do not ask")] = False,
    aliased: Annotated[bool, Parameter(help="delete even a version with an alias, such as the champion")] = False,
    records: Annotated[
        bool, Parameter(help="also delete run records that keep its weights, so that `repro gc --delete` frees them")
    ] = False,
) -> None:
    """Delete a model version with its files in MLflow. Says what goes and what stays, and asks once.

    Its weights, vocabulary and scores stay; `repro gc` lists those that no recorded run and no other version needs. The
    next `repro run` of its run registers a new version.

    Example: repro delete demo/3 --records && repro gc --delete
    """
    from flows.inspection.deletion import delete as delete_planned
    from flows.inspection.deletion import plan_deletion
    from infra.tracking.registry import resolve

    version = recorded_name(version)
    if not version.partition("/")[2].isdecimal():
        raise BadConfiguration(f"version is {version!r}, allowed is one by its number, as in demo/3")
    site = configured_site()
    if records and site.remote:
        raise BadConfiguration("--records is given, allowed is that only if the root is no bucket")
    chosen = resolve(site.registry, version)
    if chosen.aliases and not aliased:
        others = f"give another one the alias (`repro promote {chosen.name}/NUMBER --why …`), or add --aliased"
        raise BadConfiguration(f"{version} is {', '.join(chosen.aliases)}: {others}")
    planned = plan_deletion(site, chosen)
    files = "no file, since its files are not below this root"
    if planned.folder:
        size = sum(path.stat().st_size for path in files_below(planned.folder))
        files = f"its files, {size_text(size)}, in {planned.folder}"
    aliases = f", its aliases {', '.join(chosen.aliases)}" if chosen.aliases else ""
    say(f"goes: {version} in MLflow{aliases}, {files}")
    recorded = shlex.join(map(str, planned.records))
    if recorded and records:
        say(f"goes: the records of the runs that have its weights: {recorded}")
    say("stays: its runs in MLflow; its weights, vocabulary and scores, while other runs or versions need them")
    if recorded and not records:
        way = "later, in the bucket too" if site.remote else "add --records, or later"
        say(f"stays: run records that need its weights; so that `repro gc --delete` frees them, {way}: rm {recorded}")
    for words in (words for words, versions in serving(site.root).items() if version in versions):
        say(f"{words}; it keeps what it loaded until it ends")
    if planned.children:
        say(f"stays: {', '.join(planned.children)}, whose training began from it")
    if not yes and not _agrees(version):
        raise Fault("nothing was deleted")
    if resolve(site.registry, version).aliases != chosen.aliases:
        raise BadConfiguration(f"the aliases of {version} were changed meanwhile; repeat the command")
    delete_planned(site, planned, records=records)
    print_text(f"deleted {version}")


def _agrees(version: str) -> bool:
    if not sys.stdin.isatty():
        raise BadConfiguration("stdin is no terminal, so nobody can be asked; --yes deletes without a question")
    print(f"Delete {version}? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
