"""REPRO_LOG=json: every line on stderr is a JSON object, and stages say what they are."""

import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from toy_stages import Number, make

from flows.views.json_log import configure_log
from flows.views.terminal import TerminalDisplay, console, say
from infra.errors import BadConfiguration
from tasks.engine.lookup import Miss, MissReason
from tasks.engine.planner import StageResult
from tasks.engine.stage import StageCall

REPRO = [sys.executable, "-c", "from flows.cli import main; main()"]


@contextmanager
def json_log_on(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """What is written to stderr in the block, where the log is JSON."""
    written, root = io.StringIO(), logging.getLogger()
    handlers = list(root.handlers)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", written)
        patch.setenv("REPRO_LOG", "json")
        root.handlers = []
        try:
            configure_log()
            configure_log()
            yield written
        finally:
            root.handlers = handlers


def objects(written: io.StringIO) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in written.getvalue().splitlines()]
    assert all(each.pop("time").endswith("+00:00") for each in found)
    return found


def test_lines_become_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    with json_log_on(monkeypatch) as written:
        sys.stderr.write("repro: one\nsecond")
        sys.stderr.write(" half\n\n\x1b[2mgrey\x1b[0m\n")
        say("three: ä")
        say("four", "error")
        console().print("[bold]five[/bold]")
        messages = [(each["level"], each["message"]) for each in objects(written)]
        levels = ["info"] * 4 + ["error", "info"]
        assert messages == list(zip(levels, ["one", "second half", "grey", "three: ä", "four", "five"], strict=True))


def test_what_libraries_log_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with json_log_on(monkeypatch) as written:
        try:
            raise ValueError("deep inside")
        except ValueError:
            logging.getLogger("library").exception("it failed")
        (found,) = objects(written)
        assert (found["level"], found["message"], found["logger"]) == ("error", "it failed", "library")
        assert "ValueError: deep inside" in found["traceback"]


def test_stages_have_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    with json_log_on(monkeypatch) as written:
        display = TerminalDisplay("seed 2")
        call = StageCall(make, "train.en", {"number": Number()})
        display.begin(call, Miss(MissReason.NOT_MADE))
        display._shown = 0.0
        display.progress(call, 1, 4, "text")
        names = {"run": "seed 2", "stage": "make", "item": "train.en"}
        row = StageResult("make", "train.en", call.key, "completed", seconds=2.5, facts={"pairs": 7})
        display.end(row)
        begun, half, ended = objects(written)
        assert begun == {"level": "info", "message": "stage begins", **names, "key": call.key, "why": "not made yet"}
        assert (half["done"], half["total"], half["detail"]) == (1, 4, "text")
        assert names.items() <= ended.items()
        assert (ended["message"], ended["seconds"], ended["facts"]) == ("stage completed", 2.5, {"pairs": 7})


def test_another_form_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRO_LOG", "xml")
    with pytest.raises(BadConfiguration, match="REPRO_LOG is 'xml'"):
        configure_log()


def test_an_error_of_a_command_is_one_object(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRO_LOG", "json")
    done = subprocess.run([*REPRO, "run", "dmeo"], capture_output=True, text=True, check=False)
    (line,) = done.stderr.splitlines()
    found = json.loads(line)
    assert (done.returncode, found["level"]) == (2, "error")
    assert found["message"].startswith("unknown run 'dmeo'; did you mean demo?")
