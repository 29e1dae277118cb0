"""No view lets text from outside command the terminal; to a pipe, results stay exact."""

import os
import pty
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
from rich.console import Console

from flows.commands import run
from flows.inference.line_blocks import STDIO, open_output
from flows.inspection.cost import RunCost, StageCost
from flows.views.filters_view import print_rejections
from flows.views.tables import cost_table, stage_table, sweep_table
from flows.views.terminal import TerminalDisplay, print_text, say
from flows.views.trace_view import visible
from infra.site import Site
from tasks.cleaning.rejections import RejectedPair, RejectionReport
from tasks.engine.lookup import Miss, MissReason
from tasks.engine.planner import StageResult

HOSTILE = "[bold]a\x1b[2J\x1b]0;owned\x07b\x9b31mc\u202ed"


def samples(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    frame = pl.DataFrame({name: [HOSTILE] for name in ("source", "reference", "hypothesis")})
    frame.write_parquet(tmp_path / "sentences.parquet")
    monkeypatch.setattr(run, "stage_folder", lambda *_: tmp_path)
    outcome: Any = SimpleNamespace(rows=[StageResult("score", "test", "k", "completed", path="x")])
    lines = run._samples(outcome, Site())
    assert len(lines) == 4
    print("\n".join(lines))


def messages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    display = TerminalDisplay()
    display._live = True
    call: Any = SimpleNamespace(stage=SimpleNamespace(name="clean"), item="", label="clean", key="k")
    say(f"line 3 is {HOSTILE}")
    display.begin(call, Miss(MissReason.DAMAGED, detail=HOSTILE))
    display._shown = 0.0
    display.progress(call, 1, 2, HOSTILE)
    display.say(HOSTILE)
    display.end(StageResult("clean", "", "k", "completed", facts={"note": HOSTILE}))


def tables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    console = Console(width=300)
    console.print(stage_table([StageResult("clean", "", "k", "failed", failure=HOSTILE)]))
    trial = SimpleNamespace(number=1, state="failed", settings=(), failure=HOSTILE, value=None, seconds=1.0)
    found: Any = SimpleNamespace(resolved=SimpleNamespace(space={}, measure="dev.bleu"), ranked=lambda: [trial])
    console.print(sweep_table(found))
    pair = RejectedPair("p:1", HOSTILE, HOSTILE, HOSTILE, "3")
    print_rejections([RejectionReport("Length", "words", 1, 0.5, (pair,))], console)
    print(visible(HOSTILE))


@pytest.mark.parametrize("view", [samples, messages, tables])
def test_escape_sequences_are_shown_and_not_sent(
    view: Callable[[pytest.MonkeyPatch, Path], None],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    view(monkeypatch, tmp_path)
    found = "".join(capsys.readouterr())
    assert r"[bold]a\x1b[2J" in found
    for sign in ("\x1b[2J", "\x1b]", "\x07", "\x9b", "\u202e"):
        assert sign not in found, ascii(sign)


def test_square_brackets_of_an_item_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    item = "[en]a[/en]"
    display, row = TerminalDisplay(), StageResult("download", item, "k", "completed")
    call: Any = SimpleNamespace(label=f"download {item}", key="k")
    display.begin(call, Miss(MissReason.NOT_MADE))
    display.end(row)
    console = Console(width=300, stderr=True)
    console.print(stage_table([row]))
    console.print(cost_table(RunCost("x", (StageCost("download", item, "miss", 1.0, 1.0, ""),))))
    assert capsys.readouterr().err.count(item) == 4


def test_each_end_names_its_stage(capsys: pytest.CaptureFixture[str]) -> None:
    display = TerminalDisplay()
    for item in ("a", "b"):
        call: Any = SimpleNamespace(label=f"download {item}", key="k")
        display.begin(call, Miss(MissReason.NOT_MADE))
    for item in ("a", "b"):
        display.end(StageResult("download", item, "k", "completed"))
    ends = [line.partition(" completed")[0] for line in capsys.readouterr().err.splitlines() if "completed" in line]
    assert ends == ["  download a", "  download b"], "the last one too, when no other is open"


def test_results_are_exact_in_a_pipe_and_shown_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    def written(reader: int, writer: int) -> bytes:
        with os.fdopen(writer, "w", encoding="utf-8") as stream, monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", stream)
            print_text(HOSTILE)
            stream.flush()
            with open_output(STDIO) as write:
                write(f"{HOSTILE}\n".encode())
            return os.read(reader, 4096)

    assert written(*os.pipe()) == f"{HOSTILE}\n{HOSTILE}\n".encode()
    on_terminal = written(*pty.openpty())
    assert b"\\x1b[2J" in on_terminal
    assert not {0x1B, 0x07} & set(on_terminal)
    assert HOSTILE[-2].encode() not in on_terminal
