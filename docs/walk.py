"""Update the outputs in ``docs/walk.md``: run the command of each block that begins with ``$ repro trace …``.

    python docs/walk.py        (after `repro run demo`; `make walk` does both)

The text between the blocks is written by hand and does not change.
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
    """Return the output of each command on the page, by its arguments after ``repro``."""
    return dict(BLOCK.findall(page))


def rewritten(page: str, output: Callable[[str], str]) -> str:
    """Return the page with each block replaced by what ``output`` returns for its command."""
    return BLOCK.sub(lambda block: f"```text\n$ repro {block[1]}\n{output(block[1])}```", page)


def trimmed(text: str) -> str:
    """Return the text without trailing white space in its lines, ending in one line feed."""
    return "\n".join(line.rstrip() for line in text.rstrip().split("\n")) + "\n"


def run(arguments: str) -> str:
    """Return what ``repro`` prints on standard output."""
    command = [sys.executable, "-c", "from flows.cli import main; main()", *shlex.split(arguments)]
    environment = os.environ | {"COLUMNS": str(COLUMNS)}
    return trimmed(subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout)


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text(), run))
