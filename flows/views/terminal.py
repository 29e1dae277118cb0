"""Prints live progress of a run and messages of the program to stderr, results to stdout."""

import json
import sys
import time
from typing import Any

from rich.console import Console, RenderableType

from flows.views.tables import cell, format_facts
from infra.errors import INTERRUPTED
from infra.guards.shown_text import shown, shown_lines
from tasks.durations import duration
from tasks.engine.lookup import Miss
from tasks.engine.planner import StageResult
from tasks.engine.stage import StageCall

PLAIN_PROGRESS_SECONDS = 10.0
"""Seconds between progress lines if stderr is no terminal, which cannot rewrite a line."""
LIVE_PROGRESS_SECONDS = 0.2
PIPE_WIDTH = 160


class TerminalDisplay:
    """Shows each stage of a run when it begins, progresses and ends.

    ``prefix`` begins each line if several runs write to one terminal.
    """

    def __init__(self, prefix: str = "") -> None:
        self.console = console()
        self.prefix = f"{prefix}: " if prefix else ""
        self._live = sys.stderr.isatty()
        self._shown = 0.0
        self._open: dict[str, tuple[float, float]] = {}
        """Done and total of each running call, by its label."""

    def begin(self, call: StageCall, missing: Miss) -> None:
        self._shown = time.monotonic()
        self._open[call.label] = (0.0, 0.0)
        self._clear()
        self._print(f"{self.prefix}[bold]{cell(call.label)}[/bold] [dim]{call.key} · {cell(f'{missing}')}[/dim]")

    def progress(self, call: StageCall, done: float, total: float, text: str) -> None:
        self._open[call.label] = (done, total)
        now = time.monotonic()
        if now - self._shown < (LIVE_PROGRESS_SECONDS if self._live else PLAIN_PROGRESS_SECONDS):
            return
        self._shown = now
        if (parallel := len(self._open)) > 1:
            done, total = (sum(numbers) for numbers in zip(*self._open.values(), strict=True))
            text = f"of {parallel} in parallel: {text}"
        amount = f"{done:,.0f}/{total:,.0f} {100 * done / total:5.1f} %" if total else f"{done:,.0f}"
        line = shown(f"  {self.prefix}{call.stage.name} {amount} {text}")
        if self._live:
            sys.stderr.write("\r\x1b[2K" + line[: self.console.width - 1])
            sys.stderr.flush()
        else:
            self._print(cell(line))

    def say(self, text: str) -> None:
        self._clear()
        self._print(f"  {self.prefix}[yellow]{cell(text)}[/yellow]")

    def end(self, row: StageResult) -> None:
        self._clear()
        self._open.pop(row.place, None)
        name = f"[bold]{cell(row.place)}[/bold] "
        if row.state == "completed":
            facts = f"[dim]{cell(format_facts(row.facts))}[/dim]"
            self._print(f"  {self.prefix}{name}[green]completed[/green] in {duration(row.seconds)}  {facts}")
        elif row.state == "failed":
            how = "[yellow]interrupted[/yellow]" if row.failure == INTERRUPTED else "[red]failed[/red]"
            self._print(f"  {self.prefix}{name}{how}")

    def _print(self, line: str) -> None:
        """Print a line without breaks, so that links and paths stay usable."""
        self.console.print(line, soft_wrap=True)

    def _clear(self) -> None:
        if self._live:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()


def console(*, stderr: bool = True) -> Console:
    """Make a console on stderr or stdout, ``PIPE_WIDTH`` characters wide if that is no terminal."""
    width = None if (sys.stderr if stderr else sys.stdout).isatty() else PIPE_WIDTH
    return Console(stderr=stderr, highlight=False, emoji=False, width=width)


def show(*parts: RenderableType, aside: bool = False, result: Any = None) -> None:
    """Print results: tables and styled text; plain text without breaks, since users copy commands and paths.

    Prints to stdout, or with ``aside`` to stderr; with a ``result`` to stderr, and then the result as JSON to stdout.
    """
    output = console(stderr=aside or result is not None)
    for part in parts:
        is_plain = isinstance(part, str)
        with output.capture() as printed:
            output.print(part, markup=not is_plain, soft_wrap=is_plain, crop=False)
        # The cells of a table end in spaces, which only fill a file.
        output.file.write("\n".join(line.rstrip() for line in printed.get().split("\n")))
    if result is not None:
        print_json(result)


def say(text: str) -> None:
    """Print one message of the program to stderr: ``repro: ...``."""
    print(f"repro: {shown_lines(text)}", file=sys.stderr)


def print_json(value: Any) -> None:
    """Print a result for programs: one line of JSON on stdout."""
    print(json.dumps(value, ensure_ascii=False))


def print_text(text: object) -> None:
    """Print a result for people to stdout; unchanged to a pipe or a file."""
    print(shown_lines(f"{text}") if sys.stdout.isatty() else text)
