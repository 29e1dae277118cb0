"""Prints the rejections of filters: a table of counts, then samples for each filter."""

from collections.abc import Sequence

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from flows.views.tables import plain_table
from infra.guards.shown_text import shown
from tasks.cleaning.rejections import RejectionReport


def print_rejections(rules: Sequence[RejectionReport], console: Console) -> None:
    """Print the filters in the order in which they apply; without rejections there are no samples."""
    table = plain_table("filter", "rejected", "share", right=("rejected", "share"))
    for rule in rules:
        table.add_row(rule.rule, f"{rule.rejected:,}", f"{rule.share:.3%}")
    console.print(table)
    sampled = [rule for rule in rules if rule.samples]
    if sampled:
        console.print(Text("\nPairs are named by corpus and line; lines count from 0.", "dim"))
    for rule in sampled:
        console.print(Text.assemble("\n", (rule.rule, "bold"), "  ", (rule.about, "dim")))
        for sample in rule.samples:
            limits = "; allowed: ".join(filter(None, (sample.found, sample.allowed)))
            lines = Text.assemble((sample.pair_id, "bold"), shown(f"  {limits}") if limits else "")
            for side in (sample.source, sample.target):
                lines.append(f"\n{shown(side) or '(empty)'}")
            console.print(Padding(lines, (0, 0, 0, 2)))
