"""From corpus files to aligned lines: plain, compressed, in a tar archive, WMT's SGM, TMX, or a column of a table.

In: paths. Out: frames of ``source`` and ``target`` in file order; memory does not grow with the files. ``archives``
turns files into bytes, ``plain``, ``tables`` and ``tmx`` bytes into lines; ``catalogue`` lists the known corpora.
Knows neither stages nor filters.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import polars as pl

from infra.errors import BadData
from tasks.corpus import archives, plain, tables, tmx
from tasks.corpus.catalogue import Text, text_suffix

ROWS = 200_000
"""Pairs a frame."""


def lines(path: Path, member: str = "", column: str = "") -> Iterator[list[str]]:
    """The lines of a text in lists of any length, without their line ends.

    ``member``: of a tar archive. ``column``: of a table (``.csv``, ``.tsv``, ``.parquet``), or the language of a
    ``.tmx``; a row is a line, whatever line ends its value holds. ``.gz``, ``.xz``, ``.bz2``, ``.zst`` are decompressed
    and ``.sgm`` gives the text of its segments, stripped but with its entities as they are (as sacreBLEU reads it).
    Raises BadData naming the file when it is cut short, damaged, UTF-16, unsafe, a bomb, or lacks what is asked for.
    """
    told = _described(path, member, column)
    kind = text_suffix(member or path.name)
    with ExitStack() as stack, archives.read_errors_named(path, told):
        if kind == ".parquet":
            yield from tables.parquet(path, member, column, told)
            return
        stream = archives.open_text(path, member, stack)
        if kind == ".tmx":
            yield from tmx.segments(stream, column, told)
            return
        plain.refuse_utf16(stream, told)
        if kind == ".csv":
            yield from tables.csv(stream, column, told)
        elif kind == ".tsv":
            yield from tables.tsv(plain.decoded(stream, told), column, told)
        elif kind in (".sgm", ".sgml"):
            yield from plain.segments(plain.decoded(stream, told), told)
        else:
            yield from plain.decoded(stream, told)


def pairs(
    source: Path,
    target: Path,
    source_member: str = "",
    target_member: str = "",
    rows: int = ROWS,
    *,
    columns: tuple[str, str] = ("", ""),
) -> Iterator[pl.DataFrame]:
    """Frames of at most ``rows`` aligned lines, columns ``source`` and ``target``.

    Raises BadData with both numbers when one side has more lines than the other.
    """
    sides = lines(source, source_member, columns[0]), lines(target, target_member, columns[1])
    held: tuple[list[str], list[str]] = [], []
    read = [0, 0]
    while True:
        for side in (0, 1):
            while len(held[side]) < rows and (block := next(sides[side], None)) is not None:
                held[side].extend(block)
                read[side] += len(block)
        count = min(len(held[0]), len(held[1]), rows)
        if len(held[0]) != len(held[1]) and count < rows:
            for side in (0, 1):
                read[side] += sum(len(block) for block in sides[side])
            named = _described(source, source_member, columns[0]), _described(target, target_member, columns[1])
            raise BadData(
                f"{named[0]} has {read[0]} lines and {named[1]} has {read[1]}: line n of one must translate line n "
                "of the other"
            )
        if not count:
            return
        schema = {"source": pl.String, "target": pl.String}
        yield pl.DataFrame({"source": held[0][:count], "target": held[1][:count]}, schema=schema)
        for side in (0, 1):
            del held[side][:count]


def read(texts: tuple[Text, Text], paths: tuple[Path, Path]) -> Iterator[pl.DataFrame]:
    """The ``pairs`` of two texts whose files lie at these paths."""
    source, target = texts
    return pairs(*paths, source.member, target.member, columns=(source.column, target.column))


def _described(path: Path, member: str, column: str) -> str:
    return path.name + (f", member {member}" if member else "") + (f", column {column}" if column else "")
