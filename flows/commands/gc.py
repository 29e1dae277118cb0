"""``repro gc``."""

from collections import defaultdict
from typing import Annotated

from cyclopts import Parameter

from flows.commands.options import JsonOption, SiteOption
from flows.inspection.garbage_collection import GarbageReport, find_garbage, remove_garbage
from flows.runner.find_run import recorded_name
from flows.views.tables import size_text
from flows.views.terminal import say, show
from infra.guards.shown_text import shown_lines
from infra.site import configured_site


def gc(
    *,
    delete: Annotated[bool, Parameter(help="delete them; without it they are only listed")] = False,
    keep: Annotated[
        tuple[str, ...],
        Parameter(show_default=False, help="keep only this run; repeatable. Default: every run with a record"),
    ] = (),
    site: SiteOption = "local",
    as_json: JsonOption = False,
) -> None:
    """List or delete artifacts that no kept run needs, and leftovers of unfinished work older than a week.

    For each run and set of overrides, gc keeps the artifacts of the newest record. For each stage, it also keeps those
    of the newest record and of the newest finished record that have it. A registered version keeps its weights,
    vocabulary, scores and pages of `repro gap`; another system keeps its translations and scores. MLflow's own command,
    mlflow gc, removes runs that were deleted in MLflow.

    For example:

    repro gc --keep demo --keep multi30k-ende --delete
    """
    chosen = configured_site(site)
    report = find_garbage(chosen, [*map(recorded_name, keep)])
    show(_text(report, "to delete" if delete else "removable"), result=report.as_json() if as_json else None)
    if delete:
        say(f"deleted {size_text(remove_garbage(chosen, report))}")
    elif report.removable or report.leftovers:
        say("nothing was deleted; repeat with --delete to delete what is removable")


def _text(report: GarbageReport, word: str) -> str:
    kept: dict[str, list[int]] = defaultdict(list)
    for each in report.kept:
        kept[each.why].append(each.bytes)
    lines = [f"{word}  {size_text(each.bytes):>10}  {each.stage}/{each.key}  ({each.why})" for each in report.removable]
    lines += [f"{word}  {size_text(each.bytes):>10}  {each.place}  (leftover)" for each in report.leftovers]
    lines += [f"kept       {size_text(sum(sizes)):>10}  {len(sizes)} artifacts of {why}" for why, sizes in kept.items()]
    removable = sum(each.bytes for each in report.removable) + sum(each.bytes for each in report.leftovers)
    lines.append(f"{word}: {size_text(removable)}")
    return shown_lines("\n".join(lines))
