"""The lines that a run prints without a terminal."""

from types import SimpleNamespace
from typing import Any

import pytest

from flows.views.terminal import TerminalDisplay
from tasks.engine.lookup import Miss, MissReason
from tasks.engine.planner import StageResult


def test_each_end_names_its_stage(capsys: pytest.CaptureFixture[str]) -> None:
    display = TerminalDisplay()
    for item in ("a", "b"):
        call: Any = SimpleNamespace(label=f"download {item}", key="k")
        display.begin(call, Miss(MissReason.NOT_MADE))
    for item in ("a", "b"):
        display.end(StageResult("download", item, "k", "completed"))
    ends = [line.partition(" completed")[0] for line in capsys.readouterr().err.splitlines() if "completed" in line]
    assert ends == ["  download a", "  download b"], "the last one too, when no other is open"
