"""Programs on the PATH that note how they were called and answer what the test says."""

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
text = "" if sys.stdin.isatty() or name != "kubectl" else sys.stdin.read()
with open(here + "/calls", "a") as file:
    file.write(json.dumps([name, *sys.argv[1:]]) + "\\n")
if text:
    open(here + "/text", "w").write(text)
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
    """``answer`` in order of asking; the last answer to the same words stays."""

    def __init__(self, folder: Path, names: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.answers = folder, list[list[Any]]()
        folder.mkdir()
        for name in names:
            (folder / name).write_text(PROGRAM.format(python=sys.executable))
            (folder / name).chmod(0o755)
        monkeypatch.setenv("PATH", os.pathsep.join([f"{folder}", "/usr/bin", "/bin"]))
        self._write()

    def answer(self, words: str, said: str = "", complaint: str = "", status: int = 0) -> None:
        """To a command line that holds ``words``."""
        self.answers.append([words, said, complaint, status])
        self._write()

    def calls(self, name: str = "") -> list[list[str]]:
        """Every command line so far."""
        try:
            lines = (self.folder / "calls").read_text().splitlines()
        except FileNotFoundError:
            return []
        return [call for call in map(json.loads, lines) if name in ("", call[0])]

    def text(self) -> Any:
        """What was last given to kubectl."""
        return json.loads((self.folder / "text").read_text())

    def _write(self) -> None:
        (self.folder / "answers.json").write_text(json.dumps(self.answers))
