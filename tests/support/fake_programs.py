"""Fake programs on the PATH that record their command lines and print what the test sets."""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

PROGRAM = """#!{python} -S
import json, os, sys
here = os.path.dirname(os.path.abspath(__file__))
name = os.path.basename(__file__)
with open(here + "/calls", "a") as file:
    file.write(json.dumps([name, *sys.argv[1:]]) + "\\n")
answers = json.load(open(here + "/answers.json"))
for n, (words, said, complaint, status) in enumerate(answers):
    if words in " ".join([name, *sys.argv[1:]]):
        if len([a for a in answers if a[0] == words]) > 1:
            json.dump(answers[:n] + answers[n + 1:], open(here + "/answers.json", "w"))
        sys.stdout.write(said)
        sys.stderr.write(complaint)
        sys.exit(status)
"""


class Programs:
    """Answers to one command line are given in the order of ``answer``; the last one stays."""

    def __init__(self, folder: Path, names: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.answers = folder, list[list[Any]]()
        folder.mkdir()
        for name in names:
            (folder / name).write_text(PROGRAM.format(python=sys.executable))
            (folder / name).chmod(0o755)
        monkeypatch.setenv("PATH", os.pathsep.join([f"{folder}", "/usr/bin", "/bin"]))
        self._write()

    def answer(self, words: str, said: str = "", complaint: str = "", status: int = 0) -> None:
        """Answer a command line that contains ``words``."""
        self.answers.append([words, said, complaint, status])
        self._write()

    def calls(self, name: str = "") -> list[list[str]]:
        """Every recorded command line, or those of one program."""
        try:
            lines = (self.folder / "calls").read_text().splitlines()
        except FileNotFoundError:
            return []
        return [call for call in map(json.loads, lines) if name in ("", call[0])]

    def _write(self) -> None:
        (self.folder / "answers.json").write_text(json.dumps(self.answers))
