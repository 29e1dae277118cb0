"""Shows the estimated cost of a run as a table."""

from rich.table import Table

from flows.inspection.cost import RunCost
from flows.views.tables import cell, plain_table, size_text
from tasks.durations import duration


def cost_table(cost: RunCost) -> Table:
    """Make one row per stage that is not cached, then the total."""
    named = ("stage", "item", "state")
    numbers = ("time", "disk")
    table = plain_table(*named, *numbers, "estimated from", right=numbers, whole=(*named, *numbers))
    for each in cost.stages:
        seconds = "?" if each.seconds is None else duration(each.seconds)
        size = "?" if each.bytes is None else size_text(round(each.bytes))
        table.add_row(each.stage, each.item, each.state, seconds, size, cell(each.basis))
    return table


def cost_sentence(cost: RunCost) -> str:
    """Summarise the cost: ``demo: about 5 min 02 s, 21.30 MB``."""
    if not cost.stages:
        return f"{cost.run}: everything is cached; it costs nothing"
    least = "at least" if cost.unknown else "about"
    named = ", ".join(cost.unknown) if len(cost.unknown) <= 3 else f"{len(cost.unknown)} stages"
    unknown = f"; without {named}: times are known after the first run of such a stage" if cost.unknown else ""
    return f"{cost.run}: {least} {duration(cost.seconds)}, {size_text(round(cost.bytes))}{unknown}"
