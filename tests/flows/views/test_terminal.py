"""Messages and tables of a run show any text as it is."""

import io

from rich.console import Console

from flows.views.tables import stage_table
from flows.views.terminal import TerminalDisplay
from tasks.engine.planner import StageResult


def test_brackets_are_no_markup() -> None:
    why = "[Errno 28] in [/some/where]: rules[0].max: 2 -> [bold]3"
    shown = io.StringIO()
    Console(file=shown, width=200).print(stage_table([StageResult("clean", "", "k", "failed", failure=why)]))
    assert why in shown.getvalue()


def test_runs_at_work_at_once_are_told_apart() -> None:
    display = TerminalDisplay("demo-paper-A1-scale8")
    with display.console.capture() as shown:
        display.say("waiting")
        display.end(StageResult("clean", "", "k", "completed", seconds=3))
        display.end(StageResult("train", "", "k", "failed"))
        display.say("handed over " + "x" * 300)
    lines = shown.get().splitlines()
    assert len(lines) == 4, "a long line is not broken in two"
    assert all(line.startswith("  demo-paper-A1-scale8: ") for line in lines)
    assert lines[1].startswith("  demo-paper-A1-scale8: clean completed in 3 s"), "the stages of several are mixed"
    assert lines[2] == "  demo-paper-A1-scale8: train failed"
