"""The commands in the documentation: those of code blocks, and those of code in a sentence, which may be shortened."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
PROGRAMS = ("repro", "make", "prefect", "mlflow", "python", "openssl", "pytest", "pip", "apt-get")
PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "benchmarks/README.md")
FENCED = re.compile(r"^(```+)[^\n]*\n(.*?)^\1$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"^ {4,}(\S.*)$", re.MULTILINE)
ASSIGNMENT = re.compile(r"[A-Z_]+=")


@dataclass(frozen=True)
class DocumentedCommand:
    """A program and its arguments, as a page has them."""

    page: str
    words: tuple[str, ...]
    whole: bool
    """From a code block; otherwise from a sentence, where arguments may be left out."""

    def __str__(self) -> str:
        return f"{self.page}: {shlex.join(self.words)}"


def files() -> list[Path]:
    """The pages."""
    return [*(TOP / name for name in PAGES), *sorted((TOP / "docs").glob("*.md"))]


def documented_commands() -> list[DocumentedCommand]:
    """Every command of every page, each once."""
    found = []
    for file in files():
        text, page = file.read_text(), f"{file.relative_to(TOP)}"
        found += [DocumentedCommand(page, words, True) for line in code_lines(text) for words in commands_in(line)]
        spans = re.findall(r"`([^`\n]+)`", FENCED.sub("", text))
        found += [DocumentedCommand(page, words, False) for span in spans for words in commands_in(span)]
    return list(dict.fromkeys(found))


def code_lines(page: str) -> list[str]:
    """The lines of a page's code blocks, fenced or indented; one that a backslash continues is one line."""
    page = re.sub(r" *\\\n *", " ", page)
    fenced = [line.strip() for _, block in FENCED.findall(page) for line in block.splitlines()]
    return [line.removeprefix("$ ") for line in (*fenced, *INDENTED.findall(FENCED.sub("", page)))]


def commands_in(line: str) -> list[tuple[str, ...]]:
    """The commands of a line of shell that are of ``PROGRAMS``: of each part of a pipe, a list, a substitution."""
    # What follows two spaces is a comment, another column of a list, or of a table that a command printed.
    lexer = shlex.shlex(re.split(r" {2,}", line)[0], posix=True, punctuation_chars="|&;()<>")
    lexer.whitespace_split = True
    try:
        tokens = list(lexer)
    except ValueError:  # a quote that is not closed: no shell
        return []
    parts: list[list[str]] = [[]]
    skip = False
    for token in tokens:
        if skip or (token and set(token) <= {"<", ">"}):  # a redirection and its file
            skip = not skip
        elif token and set(token) <= set("|&;()$"):
            parts.append([])
        else:
            parts[-1].append(token)
    return [words for part in parts if (words := _command(part))]


def _command(words: list[str]) -> tuple[str, ...]:
    while words and (ASSIGNMENT.match(words[0]) or words[0] == "time"):
        words = words[1:]
    known = len(words) > 1 and words[0].rpartition("/")[2] in PROGRAMS and re.fullmatch(r"-*[a-z][\w./-]*", words[1])
    # The program's own help shows the form of a command with what may be left out in brackets.
    usage = any(word.startswith("[") for word in words)
    return (words[0].rpartition("/")[2], *words[1:]) if known and not usage else ()
