"""``repro gc``."""

import json
from collections import defaultdict
from typing import Annotated

from cyclopts import Parameter

from flows.commands.options import AsJson, Place
from flows.inspection.garbage_collection import Garbage, find, remove
from flows.views.terminal import console, say
from infra.servers.environment import settle
from infra.site import Site


def gc(
    *,
    delete: Annotated[bool, Parameter(negative=(), help="remove what goes; without it, it is only listed")] = False,
    keep: Annotated[
        tuple[str, ...],
        Parameter(negative=(), show_default=False, help="only these runs are kept; else all that have a record"),
    ] = (),
    site: Place = "local",
    as_json: AsJson = False,
) -> None:
    """List, or remove, the artifacts that no kept run needs, and what unfinished work left behind a week ago.

    A run is kept by its newest record and its newest finished one, those of each set of overrides apart; a registered
    version keeps its weights, vocabulary and scores.

    For example:

    repro gc

    repro gc --keep demo --keep multi30k-ende --delete
    """
    place = Site.named(site)
    settle(place.root)
    found = find(place, keep)
    _show(found)
    if as_json:
        print(json.dumps(found.as_json(), ensure_ascii=False))
    if delete:
        say(f"removed {_size(remove(place, found))}")
    elif found.goes or found.left:
        say("nothing was removed: --delete does")


def _show(found: Garbage) -> None:
    out = console()
    stays: dict[str, list[int]] = defaultdict(list)
    for each in found.stays:
        stays[each.why].append(each.bytes)
    lines = [f"goes   {_size(each.bytes):>10}  {each.stage}/{each.key}  ({each.why})" for each in found.goes]
    lines += [f"goes   {_size(each.bytes):>10}  {each.place}  (left over)" for each in found.left]
    lines += [f"stays  {_size(sum(sizes)):>10}  {len(sizes)} artifacts of {why}" for why, sizes in stays.items()]
    goes, left = sum(each.bytes for each in found.goes), sum(each.bytes for each in found.left)
    lines.append(f"in all {_size(goes + left)} of {_size(goes + left + sum(each.bytes for each in found.stays))} goes")
    for line in lines:
        out.print(line, markup=False, soft_wrap=True)


def _size(count: int) -> str:
    return f"{count / 1e9:,.2f} GB" if count >= 1e9 else f"{count / 1e6:,.2f} MB"
