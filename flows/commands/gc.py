"""``repro gc``."""

import json
from collections import defaultdict
from typing import Annotated

from cyclopts import Parameter

from flows.commands.options import JsonOption, SiteOption
from flows.inspection.garbage_collection import GarbageReport, find_garbage, remove_garbage
from flows.views.terminal import console, say
from infra.servers.environment import configure_libraries
from infra.site import Site


def gc(
    *,
    delete: Annotated[bool, Parameter(negative=(), help="remove what goes; without it, it is only listed")] = False,
    keep: Annotated[
        tuple[str, ...],
        Parameter(negative=(), show_default=False, help="only these runs are kept; else all that have a record"),
    ] = (),
    site: SiteOption = "local",
    as_json: JsonOption = False,
) -> None:
    """List, or remove, the artifacts that no kept run needs, and what unfinished work left behind a week ago.

    A run is kept by its newest record and its newest finished one, those of each set of overrides apart; a registered
    version keeps its weights, vocabulary and scores.

    For example:

    repro gc

    repro gc --keep demo --keep multi30k-ende --delete
    """
    place = Site.named(site)
    configure_libraries(place.root)
    found = find_garbage(place, keep)
    _show(found)
    if as_json:
        print(json.dumps(found.as_json(), ensure_ascii=False))
    if delete:
        say(f"removed {_size(remove_garbage(place, found))}")
    elif found.removable or found.leftovers:
        say("nothing was removed: --delete does")


def _show(found: GarbageReport) -> None:
    out = console()
    stays: dict[str, list[int]] = defaultdict(list)
    for each in found.kept:
        stays[each.why].append(each.bytes)
    lines = [f"goes   {_size(each.bytes):>10}  {each.stage}/{each.key}  ({each.why})" for each in found.removable]
    lines += [f"goes   {_size(each.bytes):>10}  {each.place}  (left over)" for each in found.leftovers]
    lines += [f"stays  {_size(sum(sizes)):>10}  {len(sizes)} artifacts of {why}" for why, sizes in stays.items()]
    goes, left = sum(each.bytes for each in found.removable), sum(each.bytes for each in found.leftovers)
    lines.append(f"in all {_size(goes + left)} of {_size(goes + left + sum(each.bytes for each in found.kept))} goes")
    for line in lines:
        out.print(line, markup=False, soft_wrap=True)


def _size(count: int) -> str:
    return f"{count / 1e9:,.2f} GB" if count >= 1e9 else f"{count / 1e6:,.2f} MB"
