"""``repro gap``."""

import json
from typing import Annotated

from cyclopts import Parameter

from flows.commands.options import JsonOption
from flows.views.gap_view import gap_tables
from flows.views.terminal import TerminalDisplay, print_json, say, show
from infra.site import configured_site


def gap(
    name: Annotated[str, Parameter(help="a version or run such as demo@champion, demo/3 or demo")],
    *,
    claim: Annotated[float | None, Parameter(help="the expected score; default: that of --as")] = None,
    claimed_as: Annotated[
        str,
        Parameter(
            name="--as",
            help="its system, to list what differs: paper-base, a preset such as tutorial, another version or run",
        ),
    ] = "",
    set_name: Annotated[
        str, Parameter(name="--on", help="the set, such as test; default: the claim's, or the last common one")
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """Say why a score differs from the claimed one: measure each cause, and list those that need a training.

    Undoes each cause in decoding, protocol or text, alone and with the others, and scores the set again. Causes that
    need another training are listed with its command and cost.

    Example: repro gap wmt14-ende-base@champion --claim 27.3 --as paper-base
    """
    from flows.inspection.gap import explain_gap
    from tasks.stages.gap import PAGE

    folder = explain_gap(name, claim, claimed_as, set_name, configured_site(), TerminalDisplay()).path()
    values = json.loads((folder / "gap.json").read_bytes())
    tables = [part for table in gap_tables(values) for part in ("", table)]
    show(*tables, f"\npage: {folder / PAGE}", aside=as_json)
    if not claimed_as:
        say("to list and measure what differs, name the claim's system by --as (see `repro gap --help`)")
    if as_json:
        print_json(values | {"page": f"{folder / PAGE}"})
