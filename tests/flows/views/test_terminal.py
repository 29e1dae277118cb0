"""Messages and tables of a run show any text as it is."""

import io

from rich.console import Console

from flows.views.tables import PAGE_ALONE, paper_table, stage_table
from flows.views.terminal import TerminalDisplay
from tasks.engine.planner import StageResult
from tasks.evaluation.paper_page import COLUMNS


def test_brackets_are_no_markup() -> None:
    why = "[Errno 28] in [/some/where]: rules[0].max: 2 -> [bold]3"
    shown = io.StringIO()
    Console(file=shown, width=200).print(stage_table([StageResult("clean", "", "k", "failed", failure=why)]))
    assert why in shown.getvalue()


def test_no_word_or_number_of_the_papers_table_is_broken() -> None:
    columns = ["row", "PPL, ours", "BLEU, ours, that protocol", "BLEU, ours, 13a", "FLOPs, ours, counted", "hours"]
    cells = ["table2-base-enfr", "181.86 *", "2.59 (2.26–2.90)", "12.59 (12.26–12.90)", "1.42e+12", "0.11"]
    shown = io.StringIO()
    Console(file=shown, width=50).print(paper_table(columns, [cells] * 2), crop=False)
    words = shown.getvalue().split()
    assert "protocol" in words
    for cell in (*cells[:4], cells[5]):
        assert all(words.count(word) == 2 for word in cell.split() if word != "*"), cell
    assert "1.42e+12" not in words, "the page alone has the operations"
    assert set(COLUMNS) > PAGE_ALONE, "a column has another name now"


def test_runs_at_work_at_once_are_told_apart() -> None:
    display = TerminalDisplay(lambda *_: None, "demo-paper-A1-scale8")
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
