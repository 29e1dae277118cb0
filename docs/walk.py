"""Writes the outputs in ``docs/walk.md`` anew: each block that begins with ``$ repro trace …`` is run, its output kept.

    python docs/walk.py        (after `repro run demo`; `make walk` does both)

The prose between the blocks is written by hand and stays.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

PAGE = Path(__file__).with_name("walk.md")
COLUMNS = 110
BLOCK = re.compile(r"```text\n\$ repro (trace [^\n]*)\n(.*?)```", re.DOTALL)


def blocks(page: str) -> dict[str, str]:
    """The output of each command on the page, by its words after ``repro``."""
    return dict(BLOCK.findall(page))


def rewritten(page: str, output: Callable[[str], str]) -> str:
    """The page with the output of each command as ``output`` gives it."""
    return BLOCK.sub(lambda block: f"```text\n$ repro {block[1]}\n{output(block[1])}```", page)


def trimmed(text: str) -> str:
    """The text without white space at the ends of lines, ending in one line end."""
    return "\n".join(line.rstrip() for line in text.rstrip().split("\n")) + "\n"


def run(words: str) -> str:
    """What ``repro`` prints."""
    command = [sys.executable, "-c", "from flows.cli import main; main()", *shlex.split(words)]
    environment = os.environ | {"COLUMNS": str(COLUMNS)}
    return trimmed(subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout)


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text(), run))
