"""Saves text that comes from a pipe, so that a run can read it again: ``zcat a.gz | repro new … --source -:en``."""

import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from infra.errors import BadConfiguration
from tasks.corpus.archives import MAGIC

DESCRIPTORS = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")
"""Paths that begin so name an open file, which can be read only once."""


def save_pipes(words: Sequence[str], name: str, replace: bool) -> Iterator[str]:
    """Yield the words (FILE or FILE:COLUMN); saves each pipe as NAME.piped-N and puts that file in its place.

    A pipe is ``-``, a named one, or what the shell passes for ``<(zcat a.gz)``. The first line decides the suffix:
    ``.txt`` without a column, else ``.jsonl``, ``.tsv`` or ``.csv``.
    """
    saved: dict[str, Path] = {}
    for each in words:
        file, colon, column = each.partition(":")
        path = Path(file)
        is_pipe = file == "-" or path.is_fifo() or (file.startswith(DESCRIPTORS) and path.exists())
        if is_pipe and file not in saved:
            saved[file] = _save(file, bool(column), f"{name}.piped-{len(saved) + 1}", replace)
        yield f"{saved[file]}{colon}{column}" if is_pipe else each


def _save(file: str, is_table: bool, name: str, replace: bool) -> Path:
    with sys.stdin.buffer if file == "-" else Path(file).open("rb") as stream:
        first = stream.readline()
        if first.startswith(tuple(MAGIC)):
            raise BadConfiguration(f"{file} is compressed, allowed is text; unpack it in the pipe: zstd -dc FILE |")
        if not first:
            raise BadConfiguration(f"{file} is empty; does the command before the pipe fail?")
        suffix = ".txt"
        if is_table:
            suffix = ".jsonl" if first.lstrip().startswith(b"{") else ".tsv" if b"\t" in first else ".csv"
        path = Path(f"{name}{suffix}")
        if path.exists() and not replace:
            raise BadConfiguration(f"{path}, which the text of {file} would be saved as, exists; give --replace")
        partial = Path(f"{path}.partial")
        with partial.open("wb") as out:
            out.write(first)
            shutil.copyfileobj(stream, out)
        partial.replace(path)
    return path
