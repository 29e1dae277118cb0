"""A run on the terminal: what each stage does while it does it, a table at the end. All of it on stderr."""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from flows.runner.seeds import SeedResults
from tasks.engine.planner import StageResult
from tasks.engine.progress import duration
from tasks.engine.stage import StageCall
from tasks.evaluation.compare import Comparison

PLAIN_PROGRESS_SECONDS = 10.0
"""Between two progress lines where the terminal cannot rewrite one."""
PIPE_WIDTH = 160
MAX_FACT_LENGTH = 40
"""A fact longer than this (a sum, a signature) is left to the manifest."""
COLOURS = {"completed": "green", "hit": "cyan", "cached": "cyan", "failed": "red", "miss": "yellow", "waits": "yellow"}


class TerminalDisplay:
    """Shows a run; ``follow`` is called with every progress as well (Prefect's artifact). ``mark`` begins each line."""

    def __init__(self, on_progress: Callable[[StageCall, float, float, str], None], prefix: str = "") -> None:
        self.console = console()
        self.on_progress = on_progress
        self.prefix = f"{prefix}: " if prefix else ""
        self._live = sys.stderr.isatty()
        self._shown = 0.0
        self._open: dict[str, tuple[float, float]] = {}
        """What runs at this moment, and how far it is."""

    def begin(self, call: StageCall, why: str) -> None:
        self._shown = time.monotonic()
        self._open[call.label] = (0.0, 0.0)
        self._clear()
        self.console.print(f"{self.prefix}[bold]{call.label}[/bold] [dim]{call.key} · {escape(why)}[/dim]")

    def progress(self, call: StageCall, done: float, total: float, text: str) -> None:
        self.on_progress(call, done, total, text)
        self._open[call.label] = (done, total)
        now = time.monotonic()
        if now - self._shown < (0.2 if self._live else PLAIN_PROGRESS_SECONDS):
            return
        self._shown = now
        together = tuple(self._open.values())
        if len(together) > 1:
            done, total = (sum(numbers) for numbers in zip(*together, strict=True))
            text = f"of {len(together)} at once: {text}"
        share = f"{100 * done / total:5.1f} %" if total else ""
        line = (
            f"  {self.prefix}{call.stage.name} {done:,.0f}/{total:,.0f} {share} {text}"
            if total
            else f"  {self.prefix}{call.stage.name} {done:,.0f} {text}"
        )
        if self._live:
            sys.stderr.write("\r\x1b[2K" + line[: self.console.width - 1])
            sys.stderr.flush()
        else:
            self.console.print(line, markup=False)

    def say(self, text: str) -> None:
        self._clear()
        self.console.print(f"  {self.prefix}[yellow]{escape(text)}[/yellow]")

    def end(self, row: StageResult) -> None:
        self._clear()
        label = f"{row.stage} {row.item}".strip()
        alone = set(self._open) <= {label}
        self._open.pop(label, None)
        named = "" if alone else f"[bold]{label}[/bold] "
        if row.state == "completed":
            told = f"[dim]{escape(format_facts(row.facts))}[/dim]"
            self.console.print(f"  {self.prefix}{named}[green]completed[/green] in {duration(row.seconds)}  {told}")
        elif row.state == "failed":
            self.console.print(f"  {self.prefix}{named}[red]failed[/red]")

    def _clear(self) -> None:
        if self._live:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()


def console() -> Console:
    """Stderr; where it is no terminal, lines as long as they are."""
    width = None if sys.stderr.isatty() else PIPE_WIDTH
    return Console(stderr=True, highlight=False, width=width)


def stage_table(rows: Sequence[StageResult]) -> Table:
    """Stages with state, seconds and facts; ``why`` where there is one."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("stage", "item", "state"):
        table.add_column(name, no_wrap=True)
    table.add_column("time", justify="right", no_wrap=True)
    table.add_column("facts", overflow="fold")
    for row in rows:
        colour = COLOURS[row.state]
        seconds = duration(row.seconds) if row.seconds else ""
        state, said = f"[{colour}]{row.state}[/{colour}]", escape(row.why or format_facts(row.facts))
        table.add_row(row.stage, row.item, state, seconds, said)
    return table


def score_table(scores: Mapping[str, Mapping[str, Any]]) -> Table:
    """The card of each set, one column a set."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("score")
    for name in scores:
        table.add_column(name, justify="right")
    for name in metric_names(scores):
        table.add_row(name, *(_number(card.get(name, "")) for card in scores.values()))
    return table


def seed_table(seeds: SeedResults) -> Table:
    """Each number of each set by seed, with mean and standard deviation."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("set", "score"):
        table.add_column(name)
    for name in (*(f"seed {seed}" for seed in seeds.outcomes), "mean", "deviation"):
        table.add_column(name, justify="right")
    for spread in seeds.spreads():
        cells = [spread.values.get(seed, "") for seed in seeds.outcomes]
        cells += [spread.summary.get(name, "") for name in ("mean", "deviation")]
        table.add_row(spread.set_name, spread.measure, *(_number(cell) for cell in cells))
    return table


def comparison_table(comparisons: Sequence[Comparison]) -> Table:
    """Both systems' numbers for each set, what B gains, and the chance of so large a difference between equals."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("set", "score"):
        table.add_column(name)
    for name in ("A", "B", "B - A", "p"):
        table.add_column(name, justify="right")
    for comparison in comparisons:
        for row in comparison.differences:
            numbers = (_number(row.a), _number(row.b), f"{row.b - row.a:+.2f}", f"{row.p:.3f}")
            table.add_row(comparison.name, row.measure, *numbers)
    return table


def paper_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Rows beside the paper's. A column without any cell is left out: a terminal is narrow."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    shown = [i for i in range(len(columns)) if any(row[i] for row in rows)]
    for i in shown:
        table.add_column(columns[i], justify="left" if columns[i] in ("row", "set") else "right", overflow="fold")
    for row in rows:
        table.add_row(*(escape(row[i]) for i in shown))
    return table


def metric_names(scores: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Names of the numbers on any of the cards, in their order."""
    numbers = [name for card in scores.values() for name, value in card.items() if isinstance(value, int | float)]
    return list(dict.fromkeys(numbers))


def format_facts(facts: Mapping[str, Any], most: int = 6) -> str:
    """The first short facts on one line: ``pairs 28,996 · rejected 4``."""
    plain = [(n, v) for n, v in facts.items() if isinstance(v, int | float | str) and len(str(v)) <= MAX_FACT_LENGTH]
    return " · ".join(f"{name.replace('_', ' ')} {_number(value)}" for name, value in plain[:most])


def _number(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.2f}"
    if isinstance(value, int):
        return f"{value:,}"
    return str(value)


def say(text: str) -> None:
    """One line of the program's own to stderr."""
    print(f"repro: {text}", file=sys.stderr)
