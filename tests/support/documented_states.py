"""What runs each command of the documentation; ``python tests/support/documented_states.py`` prints it as a table."""

import re
import shlex
import sys
from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path

if __name__ == "__main__":
    sys.path[:0] = [f"{Path(__file__).parents[2]}"]

from documented_commands import TOP, DocumentedCommand, code_lines, commands_in, documented_commands, files
from documented_tables import CANNOT, ELSEWHERE, WITH_VARIABLES

TUTORIAL = "tests/flows/test_tutorial.py"
LINES = "tests/flows/test_documented_lines.py"
SHORTENED = re.compile(r"…|<|^[A-Z_]+$")
"""What stands for something else in a sentence."""
ASSIGNED = re.compile(r"[A-Z_]+=")


@cache
def lines() -> tuple[str, ...]:
    """The lines of shell that ``test_documented_lines.py`` runs, in the order of the pages; what deletes is last.

    They are the lines of code blocks, and commands of a sentence that stand for themselves and are part of no line.
    """
    found = [re.split(r" {2,}", line)[0] for file in files() for line in code_lines(file.read_text())]
    found = [line for line in dict.fromkeys(found) if commands_in(line) and not line.startswith((*WITH_VARIABLES,))]
    # With a variable in front it is another command than the same words without it.
    found = [line for line in found if ASSIGNED.match(line) or all(ours(words) for words in commands_in(line))]
    blocks = [words for line in found for words in commands_in(line)] + [*tutorial()]
    blocks += [tuple(shlex.split(text)) for table in (CANNOT, ELSEWHERE) for text in table]
    for command in documented_commands():
        words = command.words
        if not command.whole and ours(words) and not is_shortened(words) and not is_part_of(words, blocks):
            found.append(shlex.join(words))
            blocks.append(words)
    return tuple(sorted(found, key=lambda line: "--delete" in line))


def ours(words: tuple[str, ...]) -> bool:
    """Whether no other table and not the tutorial has this command."""
    return not any(shlex.join(words) in table for table in (CANNOT, ELSEWHERE)) and words not in tutorial()


@cache
def commands_of_lines() -> frozenset[tuple[str, ...]]:
    return frozenset(words for line in lines() for words in commands_in(line))


@cache
def tutorial() -> frozenset[tuple[str, ...]]:
    """The commands of the tutorial's code, which its test runs."""
    text = (TOP / "docs" / "tutorial.md").read_text()
    return frozenset(words for line in code_lines(text) for words in commands_in(line))


def is_shortened(words: Iterable[str]) -> bool:
    return any(SHORTENED.search(word) for word in words)


def is_part_of(words: Iterable[str], commands: Iterable[tuple[str, ...]]) -> bool:
    """Whether one of the commands has these words in this order, but for what stands for something else."""
    wanted = [word for word in words if not SHORTENED.search(word)]
    return any(all(word in rest for word in wanted) for each in commands if (rest := iter(each)))


def state(command: DocumentedCommand) -> tuple[str, str]:
    """``run``, ``cannot`` or ``unknown``, and the test or the reason."""
    text = shlex.join(command.words)
    if text in CANNOT:
        return "cannot", CANNOT[text]
    if text in ELSEWHERE:
        return "run", ELSEWHERE[text]
    if command.words in tutorial():
        return "run", TUTORIAL
    run = commands_of_lines()
    if command.words in run:
        return "run", LINES
    if not command.whole:
        for test, commands in ((LINES, run), (TUTORIAL, tutorial()), *each_of(ELSEWHERE)):
            if is_part_of(command.words, commands):
                return "run", test
        for reason, commands in each_of(CANNOT):
            if is_part_of(command.words, commands):
                return "cannot", reason
    return "unknown", ""


def each_of(table: dict[str, str]) -> list[tuple[str, list[tuple[str, ...]]]]:
    return [(value, [tuple(shlex.split(text))]) for text, value in table.items()]


def main() -> None:
    counted: Counter[tuple[str, bool]] = Counter()
    for command in documented_commands():
        kind, what = state(command)
        counted[kind, command.whole] += 1
        print(f"{kind:8} {'block' if command.whole else 'sentence':8}  {command}  [{what}]")
    for (kind, whole), count in sorted(counted.items()):
        print(f"{kind}: {count} {'of code blocks' if whole else 'in sentences'}")


if __name__ == "__main__":
    main()
