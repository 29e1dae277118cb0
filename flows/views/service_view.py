"""A table of the service's programs."""

from collections.abc import Sequence

from rich.table import Table

from infra.service.supervision import ProgramState


def state_table(states: Sequence[ProgramState]) -> Table:
    """One row per program: state, process id, start, health, address and log."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("program", "state", "pid", "since", "health"):
        table.add_column(name, no_wrap=True)
    for name in ("link", "log"):
        table.add_column(name, overflow="fold")
    for each in states:
        colour = "green" if each.healthy else "yellow"
        health = f"[{colour}]{'healthy' if each.healthy else 'no answer'}[/{colour}]"
        table.add_row(each.name, each.state, str(each.pid or ""), each.since, health, each.link, each.log)
    return table
