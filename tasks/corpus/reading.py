"""Reads corpus files as aligned lines: plain, compressed or archived text, WMT's SGM, TMX, or a column of a table.

Memory does not grow with the files.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from infra.errors import BadData
from model.lazy_import import lazy_import
from tasks.corpus import archives, plain, tables, tmx
from tasks.corpus.catalogue import Text, text_suffix

if TYPE_CHECKING:
    import polars as pl
else:
    pl = lazy_import("polars")

ROWS = 200_000
"""Pairs per frame."""


def read_lines(path: Path, member: str = "", column: str = "") -> Iterator[list[str]]:
    """The lines of a text, without their line ends, in lists of any length.

    ``member`` is a member of a tar archive. ``column`` is a column of a table (``.csv``, ``.tsv``, ``.parquet``) or the
    language of a ``.tmx``; each row gives one line, even if the value contains line ends. ``.gz``, ``.xz``, ``.bz2``
    and ``.zst`` are decompressed. ``.sgm`` gives the stripped text of its segments, with entities left as they are (as
    in sacreBLEU). Raises BadData naming the file when it is truncated, damaged, UTF-16, unsafe, expands too much, or
    lacks the member or column.
    """
    label = _label(path, member, column)
    kind = text_suffix(member or path.name)
    with ExitStack() as stack, archives.read_errors_named(path, label):
        if kind == ".parquet":
            yield from tables.parquet(path, member, column, label)
            return
        stream = archives.open_text(path, member, stack)
        if kind == ".tmx":
            yield from tmx.segments(stream, column, label)
            return
        plain.refuse_utf16(stream, label)
        if kind == ".csv":
            yield from tables.csv(stream, column, label)
        elif kind == ".tsv":
            yield from tables.tsv(plain.decoded(stream, label), column, label)
        elif kind in (".sgm", ".sgml"):
            yield from plain.segments(plain.decoded(stream, label), label)
        else:
            yield from plain.decoded(stream, label)


def read_pairs(texts: tuple[Text, Text], paths: tuple[Path, Path]) -> Iterator[pl.DataFrame]:
    """Frames of at most ROWS aligned lines of two texts, columns ``source`` and ``target``; ``paths`` are their files.

    Raises BadData with both line counts when one side has more lines than the other.
    """
    sides = [read_lines(path, text.member, text.column) for text, path in zip(texts, paths, strict=True)]
    buffered: tuple[list[str], list[str]] = [], []
    read = [0, 0]
    while True:
        for side in (0, 1):
            while len(buffered[side]) < ROWS and (block := next(sides[side], None)) is not None:
                buffered[side].extend(block)
                read[side] += len(block)
        count = min(len(buffered[0]), len(buffered[1]), ROWS)
        if len(buffered[0]) != len(buffered[1]) and count < ROWS:
            for side in (0, 1):
                read[side] += sum(len(block) for block in sides[side])
            source, target = (_label(path, text.member, text.column) for text, path in zip(texts, paths, strict=True))
            raise BadData(
                f"{source} has {read[0]} lines and {target} has {read[1]}: line n of one must translate line n of the "
                "other"
            )
        if not count:
            return
        schema = {"source": pl.String, "target": pl.String}
        yield pl.DataFrame({"source": buffered[0][:count], "target": buffered[1][:count]}, schema=schema)
        for side in (0, 1):
            del buffered[side][:count]


def _label(path: Path, member: str, column: str) -> str:
    return path.name + (f", member {member}" if member else "") + (f", column {column}" if column else "")
