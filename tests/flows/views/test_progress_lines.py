"""The lines that a run prints without a terminal."""

from types import SimpleNamespace
from typing import Any

import pytest

from flows.views.terminal import TerminalDisplay
from tasks.engine.lookup import Miss, MissReason
from tasks.engine.planner import StageResult


@pytest.mark.parametrize(
    ("steps", "named"), [("+a -a +b -b", [False, False]), ("+a +b -a -b", [True, True]), ("+a +b -b -a", [True, True])]
)
def test_an_end_has_no_name_only_directly_below_its_beginning(
    steps: str, named: list[bool], capsys: pytest.CaptureFixture[str]
) -> None:
    display = TerminalDisplay()
    for sign, item in steps.split():
        call: Any = SimpleNamespace(label=f"download {item}", key="k")
        if sign == "+":
            display.begin(call, Miss(MissReason.NOT_MADE))
        else:
            display.end(StageResult("download", item, "k", "completed"))
    ends = [line for line in capsys.readouterr().err.splitlines() if "completed" in line]
    assert [line.startswith("  download") for line in ends] == named
